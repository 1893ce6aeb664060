#pragma once
// Versions of the weights, from the trainer to ranks that generate: version v is the state after step v.
// Ranks with the trainer role share its buffers (0 bytes move); the other rollout ranks get every version in
// a message from each trainer rank, by a plan made once, and compare digests. A version goes out only after
// the one before was taken: with a lag, those that generate are at most two versions behind. Where they do
// nothing else the trainer keeps that many, for a checkpoint of a run that is stopped.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "src/run/exchange/end_of_run.h"
#include "src/run/exchange/weight_transfer.h"

namespace temper {

class WeightSync {
 public:
  static constexpr int64_t kMostBehind = 2;

  WeightSync(Mailbox& mailbox, const RoleRanks& ranks, int64_t max_policy_lag, EndOfRun& end)
      : mailbox_(mailbox),
        ranks_(ranks),
        keeps_(ranks.generate_apart() ? std::min(max_policy_lag, kMostBehind) : 0),
        end_(end) {}

  /// The weights are of this version: 0, or that of a checkpoint.
  void start(int64_t version) { version_ = version; }
  /// Trainer ranks, after each step but the last of the run, and once at the start.
  void publish(const ParameterStore& weights, int64_t version);
  /// Older versions that a checkpoint held, in order, before the first `publish`.
  void publish_older(const ParameterStore& weights, int64_t version) { post(weights, version); }
  /// Trainer ranks: what this rank sent of a version before the last one, as long as it may be needed; false
  /// when it is not kept.
  bool look_into_sent(const ParameterStore& weights, int64_t version, const WeightTransfer::See& see);
  /// Rollout ranks: the weights become exactly this version. False when the run ends instead.
  bool receive(ParameterStore& weights, int64_t version);

  /// Rollout ranks that were cut: takes what is under way.
  void wait_for_end();

  /// Trainer ranks: the last one that went out.
  int64_t version() const { return version_; }
  int64_t bytes_moved() const { return bytes_moved_; }

 private:
  WeightTransfer& transfer(const ParameterStore& weights);
  void post(const ParameterStore& weights, int64_t version);
  int source_index() const {
    return static_cast<int>(std::lower_bound(ranks_.trainer.begin(), ranks_.trainer.end(), mailbox_.rank()) -
                            ranks_.trainer.begin());
  }

  Mailbox& mailbox_;
  RoleRanks ranks_;
  int64_t keeps_;  // versions before the last one
  EndOfRun& end_;
  std::map<int64_t, std::string> sent_;  // by version, the last one too
  std::optional<WeightTransfer> transfer_;
  /// By sender: one may already have sent the next version before the last one's message is found.
  std::map<int, std::deque<std::string>> come_;
  int64_t version_ = 0, bytes_moved_ = 0;
};

}  // namespace temper

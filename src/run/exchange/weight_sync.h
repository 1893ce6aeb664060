#pragma once
// Versions of the weights, from the trainer to ranks that generate: version v is the state after step v.
// Ranks with the trainer role share its buffers (0 bytes move); the other rollout ranks get every version in
// a message from each trainer rank, by a plan made once, and compare digests. A version goes out only after
// the one before was taken.

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
  WeightSync(Mailbox& mailbox, const RoleRanks& ranks, EndOfRun& end)
      : mailbox_(mailbox), ranks_(ranks), end_(end) {}

  /// The weights are of this version: 0, or that of a checkpoint.
  void start(int64_t version) { version_ = version; }
  /// Trainer ranks, after each step but the last of the run, and once at the start.
  void publish(const ParameterStore& weights, int64_t version);
  /// Rollout ranks: the weights become exactly this version. False when the run ends instead.
  bool receive(ParameterStore& weights, int64_t version);

  /// Trainer ranks: the last one that went out.
  int64_t version() const { return version_; }
  int64_t bytes_moved() const { return bytes_moved_; }

 private:
  WeightTransfer& transfer(const ParameterStore& weights);

  Mailbox& mailbox_;
  RoleRanks ranks_;
  EndOfRun& end_;
  std::optional<WeightTransfer> transfer_;
  /// By sender: one may already have sent the next version before the last one's message is found.
  std::map<int, std::deque<std::string>> come_;
  int64_t version_ = 0, bytes_moved_ = 0;
};

}  // namespace temper

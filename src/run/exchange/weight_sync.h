#pragma once
// Versions of the weights, from the trainer to ranks that generate: version v is the state after step v.
// Where a rank generates with the very buffers that it trains, 0 bytes move; every other one gets of each
// version what it lacks, in a message from each trainer rank that has some of it, by plans made once, and
// compares digests. A version goes out only after the one before was taken: with a lag, those that generate
// are at most two versions behind. Where they do nothing else the trainer keeps that many, for a checkpoint
// of a run that is stopped.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/run/exchange/end_of_run.h"
#include "src/run/exchange/weight_transfer.h"

namespace temper {

/// Who sends weights to whom; the same on every rank.
struct WeightRoutes {
  struct Receiver {
    int rank = 0;  // of the world
    ShardPlace place;
  };
  std::vector<int> sources;  // trainer ranks: world ranks of `holders`
  Holders holders;
  std::vector<Receiver> receivers;  // by rank; those with buffers of their own
  bool apart = false;               // no rank trains and generates

  /// -1: it is none.
  int source(int rank) const;
  int receiver(int rank) const;
};

class WeightSync {
 public:
  static constexpr int64_t kMostBehind = 2;

  WeightSync(Mailbox& mailbox, WeightRoutes routes, int64_t max_policy_lag, EndOfRun& end)
      : mailbox_(mailbox),
        routes_(std::move(routes)),
        keeps_(routes_.apart ? std::min(max_policy_lag, kMostBehind) : 0),
        end_(end) {}

  /// The weights are of this version: 0, or that of a checkpoint.
  void start(int64_t version) { version_ = version; }
  /// Trainer ranks, after each step but the last of the run, and once at the start.
  void publish(const ParameterStore& trained, int64_t version);
  /// Older versions that a checkpoint held, in order, before the first `publish`.
  void publish_older(const ParameterStore& trained, int64_t version) { post(trained, version); }
  /// Trainer ranks: what this rank sent of a version before the last one, to those that first have a whole
  /// model, as long as it may be needed; false when it is not kept.
  bool look_into_sent(const ParameterStore& trained, int64_t version, const WeightTransfer::See& see);
  /// Rollout ranks: the weights become exactly this version. `trained`: on trainer ranks, which may be the
  /// weights themselves; else null. False when the run ends instead.
  bool receive(Lane& lane, ParameterStore& weights, const ParameterStore* trained, int64_t version);

  /// Rollout ranks that were cut: takes what is under way.
  void wait_for_end();

  /// Trainer ranks: the last one that went out.
  int64_t version() const { return version_; }
  int64_t bytes_moved() const { return bytes_moved_; }
  const WeightRoutes& routes() const { return routes_; }

 private:
  WeightTransfer& transfer(const ParameterStore& weights, size_t receiver);
  void post(const ParameterStore& trained, int64_t version);

  Mailbox& mailbox_;
  WeightRoutes routes_;
  int64_t keeps_;  // versions before the last one
  EndOfRun& end_;
  std::map<int64_t, std::map<size_t, std::string>> sent_;  // by version, the last one too, and receiver
  std::optional<device::HostWindows> windows_;
  std::map<size_t, WeightTransfer> transfers_;  // by receiver
  /// By sender: one may already have sent the next version before the last one's message is found.
  std::map<int, std::deque<std::string>> come_;
  int64_t version_ = 0, bytes_moved_ = 0;
};

}  // namespace temper

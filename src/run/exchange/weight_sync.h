#pragma once
// Versions of the weights, from the trainer to ranks that generate: version v is the state after step v.
// Where a rank generates with the very buffers that it trains, 0 bytes move; every other one gets of each
// version what it lacks from each trainer rank that has some of it, by plans made once, and compares digests:
// out of the GPU memory of that rank, where both are of one host and it can be opened, else in a message. A
// version goes out only after the one before was taken: with a lag, those that generate are at most two
// versions behind. Where they do nothing else the trainer keeps that many in host memory, for a checkpoint of
// a run that is stopped: those that it sent, or else copies that a lane of their own makes while the next
// step computes. Weights that others read where they lie, or that are copied, do not change before that is
// done.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "src/core/gpu/peer_memory.h"
#include "src/core/lane.h"
#include "src/core/region.h"
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

  /// Finds out who reads whose memory; once, by all ranks that have weights: those that they train, and those
  /// that they generate with where these are others. Null: none.
  void connect(const ParameterStore* trained, const ParameterStore* generating);
  /// Receivers let go of the memory of others, before it goes.
  void disconnect() { memories_.clear(); }
  /// The weights are of this version: 0, or that of a checkpoint.
  void start(int64_t version) { version_ = version; }
  /// Trainer ranks, after each step but the last of the run, and once at the start.
  void publish(Ctx& c, const ParameterStore& trained, int64_t version);
  /// Older versions that a checkpoint held, in order, before the first `publish`. The weights may change at
  /// once.
  void publish_older(Ctx& c, const ParameterStore& trained, int64_t version) {
    post(c, trained, version, By::message);
  }
  /// Trainer ranks, each for itself, before the weights change: the last version was read by all that read it
  /// where it lies. They come to it without this rank: it is older than what they generate with next. And
  /// what is kept of it is copied.
  void wait_read();
  /// Trainer ranks: what this rank sent of a version up to the last one, to those that first have a whole
  /// model, as long as it may be needed; false when it is not kept.
  bool look_into_sent(const ParameterStore& trained, int64_t version, const WeightTransfer::See& see);
  /// Rollout ranks: the weights become exactly this version. `trained`: on trainer ranks, which may be the
  /// weights themselves; else null. False when the run ends instead.
  bool receive(Ctx& c, ParameterStore& weights, const ParameterStore* trained, int64_t version);

  /// Rollout ranks that were cut: takes what is under way.
  void wait_for_end();

  /// Trainer ranks: the last one that went out.
  int64_t version() const { return version_; }
  int64_t bytes_moved() const { return bytes_moved_; }
  /// Trainer ranks: receivers that read this rank's memory.
  size_t num_readers() const { return readers_.size(); }
  const WeightRoutes& routes() const { return routes_; }

 private:
  enum class By { message, memory };  // the second for those that can
  WeightTransfer& transfer(const ParameterStore& weights, size_t receiver);
  size_t offer(const ParameterStore& trained);
  void open(const ParameterStore& generating);
  Message await(int channel, const char* what);
  void post(Ctx& c, const ParameterStore& trained, int64_t version, By by);
  using Bytes = std::shared_ptr<const std::string>;
  /// What is kept of a version for one receiver: the message that went out, or a copy of the rows that it
  /// reads.
  struct Kept {
    Bytes message;
    std::shared_ptr<Region> copy;
    const char* rows() const { return copy ? copy->base() : WeightTransfer::rows_in(*message); }
  };
  /// Both in memory of what nobody has any longer: new pages can cost more than the copy.
  Bytes make_message(Ctx& c, const WeightTransfer& plan, const ParameterStore& trained, int64_t version);
  Kept begin_copy(const Lane& written, const WeightTransfer& plan, const ParameterStore& trained);
  /// All receivers have read what they were told of, as far as messages have come.
  bool all_read();
  std::optional<std::string> next_from(int source, int64_t version);

  Mailbox& mailbox_;
  WeightRoutes routes_;
  int64_t keeps_;  // versions before the last one
  EndOfRun& end_;
  std::map<int64_t, std::map<size_t, Kept>> sent_;    // by version, the last one too, and receiver
  std::vector<std::shared_ptr<std::string>> memory_;  // of messages
  std::vector<std::shared_ptr<Region>> copies_;       // pinned
  std::unique_ptr<Lane> copying_;                     // from the first copy on
  std::optional<device::HostWindows> windows_;
  std::map<size_t, WeightTransfer> transfers_;  // by receiver
  /// Messages that came, by sender: one may already have sent the next version before the last one's message
  /// is found.
  std::map<int, std::deque<std::string>> come_;
  struct Opened {
    std::unique_ptr<device::PeerMemory> memory;
    WeightMemory weights;
  };
  std::map<int, Opened> memories_;  // receivers: by source
  std::set<size_t> readers_;        // senders: receivers that opened this rank's memory
  int64_t reading_ = 0;             // of them, those that have not said that they have read the last version
  int64_t version_ = 0, bytes_moved_ = 0;
};

}  // namespace temper

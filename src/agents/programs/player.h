#pragma once
// Who plays sessions on the thread of a harness: episodes' programs, or the workers of a service.

#include <poll.h>

#include <string>
#include <vector>

#include "src/agents/programs/harness.h"

namespace temper {

struct PlayerNews {
  struct Ended {
    uint64_t session = 0;
    SessionEnd end = {};
    std::string why = {};
  };
  std::vector<HarnessTurn> turns = {};
  std::vector<Ended> ended = {};
  int64_t restarts = 0;

  void fail(uint64_t session, EndReason reason, std::string why) {
    ended.push_back({session, {.reason = reason}, std::move(why)});
  }
};

/// What ends by itself is told as news, and gone; what `stop` ends is gone without news.
class Player {
 public:
  virtual ~Player() = default;
  /// Nothing begins now: the sessions that wait do so a while longer.
  virtual bool has_room() const = 0;
  /// KeeperLost.
  virtual void begin(uint64_t session, const HarnessStart& start, PlayerNews& news) = 0;
  virtual void answer(uint64_t session, Json turn) = 0;
  /// `late`: its time was over.
  virtual void stop(uint64_t session, const std::string& why, bool late, PlayerNews& news) = 0;
  virtual void add_to(std::vector<pollfd>& waits) const = 0;
  /// Seconds until something happens by the clock, `most` at most.
  virtual double patience(double most) const = 0;
  virtual void move(PlayerNews& news) = 0;
};

}  // namespace temper

#pragma once
// Where the progress of all ranks comes together, and who says which of them is missing: rank 0, and a deputy
// for the case that rank 0 is. No rank has to help with its own diagnosis: one that is stopped or dead is
// silent or its line is closed.

#include <poll.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/comm/watch/watch_link.h"
#include "src/core/check.h"
#include "src/core/process/progress.h"

namespace temper {

struct RankPlace {
  std::string host;
  int process = 0;
  std::string log = {};  // its file; empty: none
};

/// A number that strangers do not know: drawn for a job, and told to its ranks through MPI.
using WatchWord = std::array<uint64_t, 2>;

/// What goes over a line to a hub, as bytes.
struct WatchMessage {
  enum Kind : int32_t { alive, done, failed };  // the last two: the rank leaves, after an error of its own
  WatchWord job = {};
  int32_t rank = 0;
  Kind kind = alive;
  ProgressState state;
};

struct Verdict {
  bool died = false;  // else it hangs
  std::string text;   // the report
};

class WatchHub {
 public:
  /// Ranks among those who connect are known by the job's word, which they say at once; who does not say it
  /// in kNewcomerSeconds is dropped, and of more than kMostNewcomers the first ones.
  static constexpr double kNewcomerSeconds = 1;
  static constexpr size_t kMostNewcomers = 16;

  /// Times are seconds of a clock of the caller that stands still while the caller does. `listener`: empty
  /// for a job of one rank.
  WatchHub(Socket listener, int rank, WatchWord job, std::vector<RankPlace> places, double limit_seconds,
           double now);

  void add_to(std::vector<pollfd>& wanted) const;
  /// Takes what has come, and this rank's own state.
  void look(const ProgressState& mine, double now);
  /// Once a rank is missing. `deaths`: a closed line counts. A deputy speaks only where rank 0 is missing.
  std::optional<Verdict> judge(double now, bool deaths) const;
  bool all_others_left() const;
  /// The state of every rank, as last heard.
  std::vector<ProgressState> states() const;
  /// Tells all ranks to end with this code.
  void send_end(int32_t code);

 private:
  struct Rank {
    WatchMessage last;
    double heard = 0, changed = 0;  // when a message came; when it told of progress
    Socket line;
    bool closed = false;
  };
  struct Newcomer {
    Socket line;
    std::string bytes;
    double since;
  };
  enum class Fault { none, died, silent, stuck };

  void welcome(double now);
  bool stays_new(Newcomer& newcomer, double now);
  void take(const WatchMessage& message, double now);
  Fault fault_of(size_t rank, double now, bool deaths) const;
  bool all_wait(double now) const;
  std::string describe(size_t rank) const;
  std::string report(size_t rank, Fault fault, double now) const;
  std::string others(double now) const;

  Socket listener_;
  size_t me_;
  WatchWord job_;
  std::vector<RankPlace> places_;
  double limit_;
  std::vector<Rank> ranks_;
  std::vector<std::string> bytes_;  // of each rank's line, up to a whole message
  std::vector<Newcomer> newcomers_;
};

/// "5.0 s, since 2026-03-01T12:00:00Z"
std::string since(double seconds);

}  // namespace temper

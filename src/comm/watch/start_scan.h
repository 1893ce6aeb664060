#pragma once
// The other ranks of this host before the ranks know each other, as Linux shows them: found by the name that
// the launcher gives a job (PMIX_NAMESPACE). MPI starts only when all ranks have come, and tells nobody which
// has not.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>

namespace temper {

class StartScan {
 public:
  /// Before the process has threads that change its environment, as MPI does.
  StartScan();
  /// Looks again. `now` in seconds, of any clock that does not go back.
  void look(double now);
  /// What is wrong: a rank that was stopped for longer than the limit, or a start that takes far too long at
  /// `now` seconds; empty while nothing is.
  std::string report(double now, double limit_seconds) const;
  /// This process is the lowest rank of its host that is not stopped. Nobody speaks for some seconds after
  /// one that was there has ended: it has spoken or failed, and the launcher is about to end the others.
  bool speaks(double now) const;

 private:
  struct Neighbour {
    pid_t process = 0;
    char state = '?';         // R, S, D, T (stopped), Z, as in /proc
    double stopped_for = -1;  // seconds that it was seen stopped; negative: it is not
    bool program = false;     // the same as of this process
  };
  std::string job_;                 // empty without PMIx
  std::map<int, Neighbour> ranks_;  // as of the last look, this process included; none without PMIx
  std::map<pid_t, double> stopped_since_;
  size_t most_ = 0;                  // ranks that were there at once
  std::optional<double> one_ended_;  // when that was seen first
};

}  // namespace temper

#pragma once
// log.command: a program that gets what a run tells, on a thread of its own, from the run folder: it never
// holds a step up, and nothing of the run depends on it. Lines of JSON on its stdin:
//   {"type": "run", "id", "name", "folder", "has", "config"}   at its start. `id` names the run for ever, a
//   run
//                                                              that begins anew in the folder has another;
//                                                              `has`: the last step that it took, -1: none
//   {"type": "sample", "step", "set", "prompt", "response", "answer", "reward", ...}   of a validation, some
//   {"type": "metrics", "step", "metrics": {...}}              of each step, once, in order
//   {"type": "end", "step", "finished"}                        then its stdin ends, and it may end
// It answers "run" with {"step": the last step that it has}, after which the next ones come, and each
// "metrics" with {"step": that step}, when it has taken it; until then no other one comes. One that does not
// answer within the limit, ends, or says something else is warned about, counted, killed and started again
// after a pause, and gets what it lacks; so does one that was behind when the run ended, when that goes on.
// The file tracker.json in the run folder holds id and step.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "src/core/stopwatch.h"
#include "src/run/record/tracker/tracked_steps.h"
#include "src/run/record/tracker/tracker_program.h"

namespace temper {

struct TrackerOptions {
  std::vector<std::string> argv;
  double limit_seconds = 60;
  std::string name, folder;  // of the run
  Json config = Json::object();
};

class Tracker {
 public:
  static constexpr double kFirstPause = 0.5, kLongestPause = 60;  // seconds before it is started again

  /// Starts the program: Exit::usage where that cannot be started at all.
  Tracker(Helpers& helpers, TrackerOptions options);
  /// Kills it.
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  /// The step has its line.
  void note_step(int64_t step);
  /// Failures since the last call, and how many steps it is behind.
  std::map<std::string, double> take_counts();

  struct End {
    int64_t step = 0;
    bool finished = false;  // the run is over
  };
  /// Waits until it has taken all steps and has ended, for so many seconds at most; warns of what it lacks.
  void finish(const End& end, double patience);

 private:
  enum class Failure { late, died, nonsense };

  void work();
  void start();
  void read_answers(TrackerProgram& program);
  std::string take_answer(const Json& answer);
  void go_on();
  void send_step(TrackedSteps::Step step);
  void send_end();
  void drop(Failure failure, std::string why);
  void wait_for_program();
  double seconds_left() const;
  bool is_asked() const { return program_ && (!greeted_ || asked_ || ended_); }
  void keep_place() const;
  void read_place();
  void wake() const;

  Helpers& helpers_;
  const TrackerOptions options_;
  int wake_ = -1;  // eventfd
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex.
  std::map<Failure, int64_t> failures_;
  int64_t newest_ = -1, taken_ = -1;  // steps: with a line; that it has
  std::optional<End> end_;
  bool stop_ = false, done_ = false;
  // What belongs to the thread.
  std::string id_;
  TrackedSteps steps_;
  std::unique_ptr<TrackerProgram> program_;  // null: it is to be started
  bool greeted_ = false, ended_ = false;     // it has said what it has; it was told that the run ended
  std::optional<int64_t> asked_;             // the step that it has to take
  Stopwatch since_;                          // it was asked, or dropped
  double pause_ = 0;                         // before it is started
  std::thread thread_;
};

}  // namespace temper

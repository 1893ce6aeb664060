#pragma once
// Finds the rank that holds up a job. A thread on each rank tells two of them, over sockets of their own,
// what its rank is at (core/process/progress.h); MPI takes no part, so a rank can be at work for as long as
// it likes and still be known to live. A job has a missing rank when one
//   died      its line was closed without a good-bye;
//   is silent nothing was heard of it for longer than the limit (stopped, host cut off);
//   is stuck  it is at work and made no progress for longer than the limit;
// or when all wait for each other for so long. A rank that was itself stopped for longer than the limit says
// nothing about the others for a while. A job of one rank is watched, too. Then one report goes to stderr and
// to a file, and the job ends: Exit::hang, after a death Exit::retry where there is a checkpoint and
// Exit::internal where there is none. Before MPI is up each host looks at its own processes
// (comm/watch/start_scan.h).

#include <functional>
#include <memory>
#include <string>

namespace temper {

class MpiSession;

class Watch {
 public:
  struct Options {
    double limit_seconds = 0;
    std::string report_file;               // reports are appended, its folder is made; empty: stderr alone
    std::function<bool()> has_checkpoint;  // is asked on another thread
    // The log of a rank, which reports name.
    std::function<std::string(int rank)> log_of = [](int) { return std::string(); };
    // What the job is at (comm/watch/progress_line.h), told on rank 0, on another thread, whenever a step has
    // lasted for so long again; 0: never. An empty line at the end.
    double tell_seconds = 0;
    std::function<void(const std::string&)> tell = {};
  };

  /// Before MPI starts.
  explicit Watch(const Options& options);
  /// Says good-bye. In order, a rank that watches goes last; left by an exception, at once.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Every rank of the world calls it. Returns the limit that waits need: none where the progress of all
  /// ranks is seen; the watch's own where their network does not let them be.
  double connect(const MpiSession& mpi);

 private:
  class Body;
  std::unique_ptr<Body> body_;
};

}  // namespace temper

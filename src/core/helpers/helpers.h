#pragma once
// Programs that a process starts and talks to over pipes, now or hours later. They are started by a keeper, a
// small process that is forked before there are threads, MPI or a GPU: a fork after that would copy a state
// that libraries do not allow to be copied (page tables of registered memory, locks that a thread holds). The
// keeper has one thread and no library of its own, so it may fork and exec at any time.
// Nobody is left behind: when the process ends, however it ends, the keeper sees its socket close, kills what
// it has started with all that came of it, and ends. When the keeper is killed, its programs are with it.
// A terminal's Control-C does not reach programs: they belong to a session of their own.

#include <sys/types.h>

#include <mutex>
#include <string>
#include <vector>

#include "src/core/check.h"

namespace temper {

/// The keeper was killed, and its programs with it. As it is, nothing goes on; a run that has a checkpoint is
/// asked for again (run/verbs/guard.h).
class KeeperLost : public Error {
 public:
  explicit KeeperLost(Problem problem) : Error(Exit::environment, std::move(problem)) {}
};

/// A program that runs. `input` and `output` are pipes to its stdin and from its stdout, not blocking, owned
/// by the caller. What it writes to stderr comes out at that of this process in whole lines, without what a
/// terminal would obey. Its environment is that of this process without the launcher's variables (OMPI_*,
/// PMIX_*, SLURM_PROCID ...): with them, what uses MPI would take itself for a rank of this job.
struct HelperProgram {
  pid_t pid = -1;
  int input = -1, output = -1;
  // One that is kept apart has them: from its stderr; what waitpid says of it (an int) once it has ended.
  int errors = -1, exited = -1;
  int error = 0;  // why it could not be started (errno)
};

class Helpers {
 public:
  /// Forks the keeper: call it while the process has one thread.
  Helpers();
  /// Ends all programs. A keeper that does not end within seconds (it was stopped) is killed.
  ~Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  /// From any thread. argv[0] is looked up in PATH. A program that cannot be started is Error(Exit::usage), a
  /// keeper that was killed KeeperLost.
  HelperProgram start(const std::vector<std::string>& argv);
  /// A program that is kept apart: its environment is `variables` ("NAME=VALUE") with TMPDIR and PWD, which
  /// are a fresh folder that goes with it (in TMPDIR of this process), its stderr is for the caller, and
  /// `end` gives it a second after SIGTERM, which nobody waits for; then nothing stays that it has started.
  /// One that cannot be started has pid -1 and says why. From any thread, KeeperLost.
  HelperProgram start_apart(const std::vector<std::string>& argv, const std::vector<std::string>& variables);
  /// Kills the program with what it has started, and closes the pipes. It does not wait for a program that a
  /// disk access keeps alive. False: the keeper was killed, and the program with it.
  bool end(HelperProgram& program) noexcept;

 private:
  HelperProgram ask(const std::string& request);

  std::mutex mutex_;
  int socket_ = -1;
  pid_t keeper_ = -1;
};

}  // namespace temper

#pragma once
// The one exception type of temper, its exit codes, and the checks that throw it.
// A user's mistake says four things: what happened, where (key, file, tensor, rank), why (with the numbers),
// and what to change. An internal inconsistency (CHECK) carries file, line and the failed expression.
// Nothing but run/verbs/guard.cpp, the CUDA backend's ChoiceFile (whose errors are harmless) and
// tests catches Error.

#include <spdlog/fmt/fmt.h>

#include <stdexcept>
#include <string>

namespace temper {

/// Exit codes of the process, also handed to MPI_Abort (see `temper help exit-codes`).
enum class Exit : int {
  ok = 0,
  usage = 64,        // bad command line or config: nothing was started
  data = 65,         // bad input data, model folder or checkpoint
  internal = 70,     // a bug in temper
  busy = 73,         // run folder in use or not writable
  storage = 74,      // reading or writing failed
  retry = 75,        // state saved, start the same command again
  hang = 76,         // a wait went over its limit
  numerics = 77,     // non-finite numbers, a dump was written
  environment = 78,  // missing driver, wrong launch
  bits = 79,         // log-probs of rollout and trainer differ
};

/// The parts of an error block; empty parts are left out. They may hold what came from outside as it is.
struct Problem {
  std::string what;
  std::string where = {};
  std::string why = {};
  std::string fix = {};
};

class Error : public std::runtime_error {
 public:
  Error(Exit code, Problem problem);
  Exit code() const { return code_; }
  const Problem& problem() const { return problem_; }

 private:
  Exit code_;
  Problem problem_;
};

/// A GPU that failed or went away under its work. As it is, nothing goes on; a run that has a checkpoint is
/// asked for again (run/verbs/guard.h).
class DeviceLost : public Error {
 public:
  explicit DeviceLost(Problem problem) : Error(Exit::environment, std::move(problem)) {}
};

[[noreturn]] void fail(Exit code, Problem problem);
[[noreturn]] void fail_check(const char* expression, const char* file, int line, const std::string& message);

}  // namespace temper

/// CHECK(condition, format, args...): an invariant of temper itself. Never for a user's mistake.
#define CHECK(condition, ...)                                                           \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::temper::fail_check(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)

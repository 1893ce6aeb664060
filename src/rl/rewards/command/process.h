#pragma once
// One program that scores responses, as the pool that owns it sees it: JSON lines out, JSON lines in, nothing
// ever waits here. A line in is at most kMaxLine bytes, so that a flood is not kept. What it says is taken
// only as the answer to a call that is open; ids cannot be guessed, so nothing is answered before it is read.

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "src/core/helpers/helpers.h"
#include "src/core/json.h"
#include "src/core/process/unsent.h"
#include "src/rl/reward.h"

namespace temper {

/// Why a call has no answer.
enum class CommandFailure { none, late, died, nonsense };

struct CommandAnswer {
  Verdict verdict = {};  // its parts by the names that the program gave
  CommandFailure failure = CommandFailure::none;
  std::string why = {};  // of the failure
};

struct CommandCall {
  Json request;
  std::promise<CommandAnswer> answer;
};

class CommandProcess {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMaxLine = size_t{1} << 20;

  explicit CommandProcess(const HelperProgram& started) : program(started) {}

  void ask(int64_t id, std::shared_ptr<CommandCall> call);
  bool wants_to_write() const { return unsent_.any(); }
  /// Writes what the pipe takes.
  void write();
  /// Reads what there is and gives calls their answers. False: the program has ended or talks nonsense, see
  /// `failure` and `why`.
  bool read();

  struct OpenCall {
    std::shared_ptr<CommandCall> call;
    Clock::time_point since;
    bool at_start;  // asked before the program's first answer: it waits for the start, too
  };
  HelperProgram program;
  std::map<int64_t, OpenCall> open;              // by id
  double longest_answer = 0, longest_start = 0;  // seconds; the latter of calls at the start
  CommandFailure failure = CommandFailure::none;
  std::string why;

 private:
  bool take(std::string_view bytes);
  bool take_line(std::string_view line);
  bool nonsense(std::string reason);

  Unsent unsent_;
  std::string unread_;
  bool answered_ = false;
};

}  // namespace temper

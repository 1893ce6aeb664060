// temper: every rank runs this. A verb is parsed, run under the one guard, and its exit code returned.

#include <cstdio>

#include "src/core/check.h"
#include "src/run/verbs/check_command.h"
#include "src/run/verbs/command_line.h"
#include "src/run/verbs/eval_command.h"
#include "src/run/verbs/guard.h"
#include "src/run/verbs/help.h"
#include "src/run/verbs/model_commands.h"
#include "src/run/verbs/train_command.h"
#include "src/run/verbs/version.h"

namespace temper {
namespace {

int print(const std::string& text, int code = 0) {
  std::fputs(text.c_str(), stdout);
  return code;
}

int run_verb(const CommandLine& line) {
  if (line.verb == "train") return run_train(line);
  if (line.verb == "eval") return run_eval(line);
  if (line.verb == "generate") return run_generate(line);
  if (line.verb == "score") return run_score(line);
  if (line.verb == "tokenize") return run_tokenize(line);
  if (line.verb == "init") return run_init(line);
  if (line.verb == "export") return run_export(line);
  if (line.verb == "verify") return run_verify(line);
  if (line.verb == "version") return print(version_text());
  if (line.verb == "check") {
    const CheckOutcome outcome = run_check(line);
    return print(outcome.output, outcome.exit_code);
  }
  CHECK(line.verb == "help", "no function for the verb {}", line.verb);
  return print(help_text(line.positional));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_guarded([&] { return temper::run_verb(temper::parse_command_line(argc, argv)); });
}

// temper: every rank runs this. A verb is parsed, run under the one guard, and its exit code returned.

#include "src/core/process/local_parent.h"
#include "src/core/process/results.h"
#include "src/run/verbs/command_line.h"
#include "src/run/verbs/guard.h"
#include "src/run/verbs/local/local_command.h"
#include "src/run/verbs/version.h"

namespace temper {
namespace {

int run_verb(const CommandLine& line, int argc, char** argv) {
  // No row of the table: it names the commit, which the library does not know.
  if (line.verb == "version") return write_results(version_text()), 0;
  return line.has("--local") ? run_locally(line, argc, argv) : find_verb(line.verb).run(line);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_guarded(
      [&] {
        temper::join_local_parent();
        return temper::run_verb(temper::parse_command_line(argc, argv), argc, argv);
      },
      temper::asks_for_json(argc, argv));
}

#include "src/core/check.h"

#include <utility>

#include "src/core/text/printable.h"

namespace temper {
namespace {

std::string message_of(const Problem& p) {
  std::string text = p.what;
  if (!p.where.empty()) text += "\n  where: " + p.where;
  if (!p.why.empty()) text += "\n  why:   " + p.why;
  if (!p.fix.empty()) text += "\n  fix:   " + p.fix;
  return printable(text);
}

}  // namespace

Error::Error(Exit code, Problem problem)
    : std::runtime_error(message_of(problem)), code_(code), problem_(std::move(problem)) {}

void fail(Exit code, Problem problem) { throw Error(code, std::move(problem)); }

void fail_check(const char* expression, const char* file, int line, const std::string& message) {
  fail(Exit::internal, {.what = "internal error: " + message,
                        .where = fmt::format("{}:{}", file, line),
                        .why = fmt::format("`{}` does not hold", expression),
                        .fix = "this is a bug in temper; the log of this rank helps to find it"});
}

}  // namespace temper

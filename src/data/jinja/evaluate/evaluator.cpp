#include "src/data/jinja/evaluate/evaluator.h"

#include "src/data/jinja/text.h"

namespace temper::jinja {

std::string Evaluator::run(const Program& program, const Json& variables) {
  Frame* const given = variables_.make_frame(nullptr);
  for (const auto& [name, value] : variables.items())
    variables_.set(*given, runtime_.keep(name), from_json(runtime_, value));
  if (const Value* date = given->variables.find("date_string"))
    if (const auto text = as_text(*date)) runtime_.date = *text;
  variables_.enter(given);
  return statements_.capture(program.body, variables_.make_frame(given, program.hidden));
}

}  // namespace temper::jinja

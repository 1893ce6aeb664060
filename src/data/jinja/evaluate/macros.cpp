#include "src/data/jinja/evaluate/macros.h"

#include "src/core/check.h"
#include "src/data/jinja/evaluate/expressions.h"
#include "src/data/jinja/evaluate/statements.h"

namespace temper::jinja {

Macro* Macros::define(const Stmt& stmt) {
  runtime_.reserve(sizeof(Macro));
  return &macros_.emplace_back(Macro{.definition = &stmt, .scope = variables_.innermost()});
}

Value Macros::call(const Macro& macro, const Arguments& arguments) {
  const Stmt& definition = *macro.definition;
  Frame* const frame = variables_.make_frame(macro.scope, definition.hidden);
  return output_.of_call("macros", frame, [&] {
    Named named(arguments.named.begin(), arguments.named.end());
    const std::vector<size_t> missing = set_given(definition, arguments, named, *frame);
    set_specials(definition, arguments, named, *frame);
    for (const size_t i : missing) {
      const Undefined nothing{.owner = "", .name = "a parameter of this macro was not given"};
      variables_.set(*frame, definition.parameters[i],
                     definition.defaults[i] ? expressions_.eval(*definition.defaults[i]) : Value(nothing));
    }
    statements_.run_block(definition.body);
  });
}

std::vector<size_t> Macros::set_given(const Stmt& definition, const Arguments& arguments, Named& named,
                                      Frame& frame) {
  const auto& names = definition.parameters;
  std::vector<size_t> missing;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto place = i < arguments.positional.size() ? named.end() : named.find(names[i]);
    if (i >= arguments.positional.size() && place == named.end()) {
      missing.push_back(i);
      continue;
    }
    variables_.set(frame, names[i], place == named.end() ? arguments.positional[i] : place->second);
    if (place != named.end()) named.erase(place);
  }
  return missing;
}

/// What no parameter took: `caller`, `kwargs` and `varargs` where the body reads them.
void Macros::set_specials(const Stmt& definition, const Arguments& arguments, Named& named, Frame& frame) {
  const size_t count = definition.parameters.size();
  if (definition.takes_caller) {
    const auto given = named.find("caller");
    const bool none = given == named.end() || is<None>(given->second);
    const Undefined missing{.owner = "", .name = "this macro was not called by a `call` block"};
    variables_.set(frame, "caller", none ? Value(missing) : given->second);
    if (given != named.end()) named.erase(given);
  }
  std::vector<std::pair<Value, Value>> rest;
  for (const auto& [name, value] : arguments.named)
    if (named.contains(name)) rest.emplace_back(name, value);
  if (!rest.empty() && !definition.takes_kwargs)
    runtime_.fail(fmt::format("the macro `{}` takes no argument `{}`, or it is given twice", definition.text,
                              std::get<std::string_view>(rest.front().first)));
  if (definition.takes_kwargs) variables_.set(frame, "kwargs", runtime_.dict(std::move(rest)));
  std::vector<Value> more;
  for (size_t i = count; i < arguments.positional.size(); ++i) more.push_back(arguments.positional[i]);
  if (!more.empty() && !definition.takes_varargs)
    runtime_.fail(fmt::format("the macro `{}` takes at most {} arguments, {} are given", definition.text,
                              count, arguments.positional.size()));
  if (definition.takes_varargs)
    variables_.set(frame, "varargs", runtime_.sequence(Form::tuple, std::move(more)));
}

}  // namespace temper::jinja

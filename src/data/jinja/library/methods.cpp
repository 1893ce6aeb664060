// Methods of lists, mappings, cyclers and text marked safe.
#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"

namespace temper::jinja {
namespace {

/// The text methods of text marked safe: what comes out is marked, what goes in is escaped.
Value call_markup_method(Runtime& runtime, std::string_view self, std::string_view name,
                         const Arguments& arguments) {
  if (name == "format") runtime.fail("`format` of text marked `safe` is not supported");
  Arguments escaped = arguments;
  auto& given = escaped.positional;
  const auto escape = [&](Value& value) { value = runtime.keep(escape_html(runtime, value)); };
  if (name == "replace" && given.size() > 1) escape(given[1]);
  if (name == "join" && !given.empty()) {
    std::vector<Value> items = iterate(runtime, given[0]);
    for (Value& item : items) escape(item);
    given[0] = runtime.list(std::move(items));
  }
  return mark_safe(runtime, call_text_method(runtime, self, name, escaped));
}

Value call_dict_method(Runtime& runtime, Dict& self, std::string_view name, const Arguments& arguments) {
  if (name == "get") {
    const Bound bound(runtime, name, arguments, {"key", "default"}, 1);
    check_hashable(runtime, *bound[0]);
    if (const Value* value = find(runtime, self, *bound[0])) return *value;
    return bound[1] ? *bound[1] : Value(None{});
  }
  const Bound bound(runtime, name, arguments, {});
  if (name == "copy") return runtime.dict(self.items);
  const Form form = name == "keys" ? Form::keys : name == "values" ? Form::values : Form::items;
  std::vector<Value> items;
  for (const auto& [key, value] : self.items)
    items.push_back(form == Form::keys     ? key
                    : form == Form::values ? value
                                           : runtime.sequence(Form::tuple, {key, value}));
  return runtime.sequence(form, std::move(items));
}

Value call_list_method(Runtime& runtime, const Sequence& self, std::string_view name,
                       const Arguments& arguments) {
  if (name == "copy") {
    const Bound none(runtime, name, arguments, {});
    return runtime.list(self.items);
  }
  const Bound bound(runtime, name, arguments, {"value"}, 1);
  int64_t count = 0;
  for (size_t i = 0; i < self.items.size(); ++i) {
    if (!equals(runtime, self.items[i], *bound[0])) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") runtime.fail("`index` did not find the value");
  return count;
}

Value call_cycler_method(Runtime& runtime, Cycler& self, std::string_view name, const Arguments& arguments) {
  const Bound bound(runtime, name, arguments, {});
  if (name == "reset") {
    self.at = 0;
    return None{};
  }
  const Value item = self.items[self.at];
  self.at = (self.at + 1) % self.items.size();
  return item;
}

}  // namespace

Value call_method(Runtime& runtime, const Method& method, const Arguments& arguments) {
  if (const auto* dict = std::get_if<Dict*>(&method.self))
    return call_dict_method(runtime, **dict, method.name, arguments);
  if (const auto* s = std::get_if<Sequence*>(&method.self))
    return call_list_method(runtime, **s, method.name, arguments);
  if (const auto* cycler = std::get_if<Cycler*>(&method.self))
    return call_cycler_method(runtime, **cycler, method.name, arguments);
  if (const auto* markup = std::get_if<Markup>(&method.self))
    return call_markup_method(runtime, markup->text, method.name, arguments);
  return call_text_method(runtime, plain_text(runtime, method.self, method.name), method.name, arguments);
}

}  // namespace temper::jinja

// str(), repr() and json.dumps() of template values, as Python writes them.
#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/data/jinja/ast.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"
#include "src/data/jinja/value.h"

namespace temper::jinja {
namespace {

std::string format_scalar(Runtime& runtime, const Value& value) {
  if (is<Undefined>(value)) return "Undefined";
  if (is<None>(value)) return "None";
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "True" : "False";
  if (const auto* n = std::get_if<int64_t>(&value)) return fmt::format("{}", *n);
  if (const auto* n = std::get_if<BigInteger>(&value)) return std::string(n->digits);
  if (const auto* x = std::get_if<double>(&value)) return format_real(*x);
  runtime.fail(fmt::format("a value of type '{}' cannot be written as text", type_name(value)));
}

/// Writes through one growing text, so that its size is bounded however often parts repeat.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxNesting) runtime_.fail(fmt::format("values nested deeper than {} levels", kMaxNesting));
    runtime_.work();
    if (const auto text = as_text(value)) {
      runtime_.handle(16 * text->size());
      add(is<Markup>(value) ? "Markup(" + quote_python(*text) + ")" : quote_python(*text));
    } else if (const auto* s = std::get_if<Sequence*>(&value)) {
      write_sequence(**s, depth);
    } else if (const auto* d = std::get_if<Dict*>(&value)) {
      write_dict(**d, depth);
    } else {
      add(format_scalar(runtime_, value));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void add(std::string_view text) {
    runtime_.handle(text.size());
    out_ += text;
    if (static_cast<int64_t>(out_.size()) > runtime_.limits().output_bytes)
      runtime_.fail(
          fmt::format("the text of a value is longer than {} bytes", runtime_.limits().output_bytes));
  }

  void write_sequence(const Sequence& s, int depth) {
    if (s.form == Form::range || s.form == Form::iterator)
      runtime_.fail("a range or an iterator cannot be written as text (use the filter `list` first)");
    static constexpr std::string_view kOpen[] = {"[",           "(", "", "dict_keys([", "dict_values([",
                                                 "dict_items(["};
    static constexpr std::string_view kClose[] = {"]", ")", "", "])", "])", "])"};
    const auto form = static_cast<size_t>(s.form);
    add(kOpen[form]);
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i > 0) add(", ");
      write(s.items[i], depth + 1);
    }
    if (s.form == Form::tuple && s.items.size() == 1) add(",");
    add(kClose[form]);
  }

  void write_dict(const Dict& dict, int depth) {
    add("{");
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) add(", ");
      write(dict.items[i].first, depth + 1);
      add(": ");
      write(dict.items[i].second, depth + 1);
    }
    add("}");
  }

  Runtime& runtime_;
  std::string out_;
};

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxNesting) runtime_.fail(fmt::format("values nested deeper than {} levels", kMaxNesting));
    runtime_.work();
    const auto* s = std::get_if<Sequence*>(&value);
    if (const auto text = as_text(value)) {
      runtime_.handle(16 * text->size());
      add(quote_json(*text, style_.ascii));
    } else if (s && ((*s)->form == Form::list || (*s)->form == Form::tuple)) {
      write_list((*s)->items, depth);
    } else if (const auto* d = std::get_if<Dict*>(&value)) {
      write_dict(**d, depth);
    } else {
      add(scalar(value));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  std::string scalar(const Value& value) const {
    if (is<None>(value)) return "null";
    if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
    if (const auto* n = std::get_if<int64_t>(&value)) return fmt::format("{}", *n);
    if (const auto* n = std::get_if<BigInteger>(&value)) return std::string(n->digits);
    if (const auto* x = std::get_if<double>(&value)) {
      if (std::isnan(*x)) return "NaN";
      if (std::isinf(*x)) return *x > 0 ? "Infinity" : "-Infinity";
      return format_real(*x);
    }
    if (const auto* missing = std::get_if<Undefined>(&value)) {
      if (!missing->owner)
        runtime_.fail(fmt::format("`{}` is undefined: it cannot be written as JSON", missing->name));
    }
    runtime_.fail(fmt::format("a value of type '{}' cannot be written as JSON", type_name(value)));
  }

  void add(std::string_view text) {
    runtime_.handle(text.size());
    out_ += text;
    if (static_cast<int64_t>(out_.size()) > runtime_.limits().output_bytes)
      runtime_.fail(
          fmt::format("the JSON of a value is longer than {} bytes", runtime_.limits().output_bytes));
  }

  void break_line(int depth) {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < depth; ++i) add(*style_.indent);
  }

  void write_list(const std::vector<Value>& items, int depth) {
    add("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      break_line(depth + 1);
      write(items[i], depth + 1);
    }
    if (!items.empty()) break_line(depth);
    add("]");
  }

  void write_dict(const Dict& dict, int depth) {
    auto items = dict.items;
    runtime_.handle(items.size() * sizeof(items[0]));
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        return order(runtime_, "<", a.first, b.first) < 0;
      });
    add("{");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      break_line(depth + 1);
      const auto name = as_text(items[i].first);
      if (!name && !as_real(items[i].first) && !is<None>(items[i].first))
        runtime_.fail(fmt::format("a key of type '{}' cannot be written as JSON", type_name(items[i].first)));
      add(quote_json(name ? *name : scalar(items[i].first), style_.ascii));
      add(style_.key_separator);
      write(items[i].second, depth + 1);
    }
    if (!items.empty()) break_line(depth);
    add("}");
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_text(Runtime& runtime, const Value& value) {
  if (const auto text = as_text(value)) {
    runtime.handle(4 * text->size());
    return std::string(*text);
  }
  if (is<Undefined>(value)) return "";
  return to_repr(runtime, value);
}

std::string to_repr(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  writer.write(value, 0);
  return writer.take();
}

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace temper::jinja

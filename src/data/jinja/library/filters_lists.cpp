// Filters over sequences and mappings. Those that give a generator in Jinja2 give a one-shot iterator here.
#include <algorithm>
#include <cmath>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

Value iterator(Runtime& runtime, std::vector<Value> items) {
  return runtime.sequence(Form::iterator, std::move(items));
}

/// The value under a path such as "function.name" or 0; `otherwise` replaces what is undefined on the way.
Value get_path(Runtime& runtime, Value value, const Value& path, const Value* otherwise = nullptr) {
  const auto step = [&](const Value& key) {
    value = get_item(runtime, value, key);
    if (otherwise && is<Undefined>(value)) value = *otherwise;
  };
  if (is<None>(path)) return value;
  const auto text = as_text(path);
  if (!text) {
    step(path);
    return value;
  }
  for (std::string_view rest = *text;;) {
    runtime.work();
    runtime.handle(4 * rest.size());
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const auto index = number ? parse_integer(part, 10) : std::nullopt;
    step(index ? Value(*index) : Value(part));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value fold_case(Runtime& runtime, const Value& value, bool case_sensitive) {
  const auto text = as_text(value);
  return text && !case_sensitive ? Value(runtime.keep(change_case(runtime, *text, Case::lower))) : value;
}

Value join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "join", arguments, {"d", "attribute"});
  auto items = iterate(runtime, value);
  if (!bound.empty(1))
    for (Value& item : items) item = get_path(runtime, item, *bound[1]);
  const std::string between = bound[0] ? to_text(runtime, *bound[0]) : "";
  return join_texts(runtime, between, items, true);
}

Value items(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "items", arguments, {});
  std::vector<Value> pairs;
  if (!is<Undefined>(value)) {
    auto* const* dict = std::get_if<Dict*>(&value);
    if (!dict) runtime.fail(fmt::format("`items` wants a mapping, not '{}'", type_name(value)));
    for (const auto& [key, item] : (*dict)->items)
      pairs.push_back(runtime.sequence(Form::tuple, {key, item}));
  }
  return iterator(runtime, std::move(pairs));
}

Value first(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "first", arguments, {});
  if (auto* const* s = std::get_if<Sequence*>(&value);
      s && (*s)->form == Form::iterator && (*s)->next < (*s)->items.size())
    return (*s)->items[(*s)->next++];
  const auto all = iterate(runtime, value);
  return all.empty() ? Value(Undefined{.owner = "", .name = "the sequence has no first item"}) : all.front();
}

Value last(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "last", arguments, {});
  if (auto* const* s = std::get_if<Sequence*>(&value); s && (*s)->form == Form::iterator)
    runtime.fail("an iterator has no last item (use the filter `list` first)");
  const auto all = iterate(runtime, value);
  if (all.empty()) return Undefined{.owner = "", .name = "the sequence has no last item"};
  return is<Markup>(value) ? mark_safe(runtime, all.back()) : all.back();
}

/// Lists of `linecount` items; the last one is filled up where there is something to fill it with.
Value batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t count = bound.integer(0, 0);
  std::vector<Value> lists, line;
  for (const Value& item : iterate(runtime, value)) {
    if (static_cast<int64_t>(line.size()) == count) {
      lists.push_back(runtime.list(std::move(line)));
      line.clear();
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    const int64_t missing = count - static_cast<int64_t>(line.size());
    if (!bound.empty(1) && missing > 0) {
      runtime.work(missing);
      runtime.reserve(static_cast<size_t>(missing) * sizeof(Value));
      line.insert(line.end(), static_cast<size_t>(missing), *bound[1]);
    }
    lists.push_back(runtime.list(std::move(line)));
  }
  return iterator(runtime, std::move(lists));
}

/// So many lists of about the same length; the shorter ones are filled up where there is something to fill
/// them with.
Value slice(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "slice", arguments, {"slices", "fill_with"}, 1);
  const auto all = iterate(runtime, value);
  const int64_t count = bound.integer(0, 0), length = static_cast<int64_t>(all.size());
  if (count == 0) runtime.fail("`slice` into 0 lists");
  std::vector<Value> lists;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool longer = i < length % count;
    const int64_t end = begin + length / count + (longer ? 1 : 0);
    std::vector<Value> items(all.begin() + begin, all.begin() + end);
    if (!bound.empty(1) && !longer) items.push_back(*bound[1]);
    lists.push_back(runtime.list(std::move(items)));
    begin = end;
  }
  return iterator(runtime, std::move(lists));
}

Value list(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "list", arguments, {});
  return runtime.list(iterate(runtime, value));
}

Value reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "reverse", arguments, {});
  if (as_text(value)) return get_slice(runtime, value, None{}, None{}, int64_t{-1});
  auto* const* s = std::get_if<Sequence*>(&value);
  const bool is_iterator = s && (*s)->form == Form::iterator;
  auto all = iterate(runtime, value);
  std::reverse(all.begin(), all.end());
  return is_iterator ? runtime.list(std::move(all)) : iterator(runtime, std::move(all));
}

/// The places of the keys in ascending (or descending) order; equal keys keep theirs.
std::vector<size_t> sorted_order(Runtime& runtime, const std::vector<Value>& keys, bool descending) {
  const auto is_nan = [](const Value& v) { return is<double>(v) && std::isnan(std::get<double>(v)); };
  for (const Value& key : keys) {
    auto* const* parts = std::get_if<Sequence*>(&key);
    if (is_nan(key) || (parts && std::any_of((*parts)->items.begin(), (*parts)->items.end(), is_nan)))
      runtime.fail("NaN cannot be sorted");
  }
  std::vector<size_t> order_of(keys.size());
  for (size_t i = 0; i < order_of.size(); ++i) order_of[i] = i;
  std::stable_sort(order_of.begin(), order_of.end(), [&](size_t a, size_t b) {
    const auto ordering = order(runtime, "<", keys[a], keys[b]);
    return descending ? ordering > 0 : ordering < 0;
  });
  return order_of;
}

std::vector<Value> sort_by(Runtime& runtime, const std::vector<Value>& values, const std::vector<Value>& keys,
                           bool descending) {
  std::vector<Value> sorted;
  for (const size_t i : sorted_order(runtime, keys, descending)) sorted.push_back(values[i]);
  return sorted;
}

Value sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const auto all = iterate(runtime, value);
  const bool case_sensitive = bound.flag(1, false);
  std::vector<Value> paths;
  if (bound.empty(2) || !as_text(*bound[2])) {
    paths.push_back(bound[2] ? *bound[2] : Value(None{}));
  } else {
    std::string_view rest = bound.text(2);
    for (size_t comma = rest.find(','); comma != std::string_view::npos; comma = rest.find(',')) {
      paths.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(comma + 1);
    }
    paths.emplace_back(rest);
  }
  std::vector<Value> keys;
  for (const Value& item : all) {
    std::vector<Value> parts;
    for (const Value& path : paths)
      parts.push_back(fold_case(runtime, get_path(runtime, item, path), case_sensitive));
    keys.push_back(runtime.list(std::move(parts)));
  }
  return runtime.list(sort_by(runtime, all, keys, bound.flag(0, false)));
}

Value dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  auto* const* dict = std::get_if<Dict*>(&value);
  if (!dict) runtime.fail(fmt::format("`dictsort` wants a mapping, not '{}'", type_name(value)));
  const auto by = bound.text(1, "key");
  if (by != "key" && by != "value") runtime.fail("`dictsort` sorts by \"key\" or \"value\"");
  std::vector<Value> pairs, keys;
  for (const auto& [key, item] : (*dict)->items) {
    pairs.push_back(runtime.sequence(Form::tuple, {key, item}));
    keys.push_back(fold_case(runtime, by == "key" ? key : item, bound.flag(0, false)));
  }
  return runtime.list(sort_by(runtime, pairs, keys, bound.flag(2, false)));
}

Value unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> out, seen;
  for (const Value& item : iterate(runtime, value)) {
    const Value key =
        fold_case(runtime, bound[1] ? get_path(runtime, item, *bound[1]) : item, bound.flag(0, false));
    check_hashable(runtime, key);
    if (std::any_of(seen.begin(), seen.end(),
                    [&](const Value& other) { return equals(runtime, key, other); }))
      continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return iterator(runtime, std::move(out));
}

/// Pairs of a key and the items that have it, by ascending keys; a key is that of its first item.
Value groupby(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const auto all = iterate(runtime, value);
  const Value* otherwise = bound.empty(1) ? nullptr : bound[1];
  const auto key_of = [&](const Value& item) { return get_path(runtime, item, *bound[0], otherwise); };
  std::vector<Value> keys;
  for (const Value& item : all) keys.push_back(fold_case(runtime, key_of(item), bound.flag(2, false)));
  std::vector<Value> groups, members;
  const auto close = [&] {
    if (members.empty()) return;
    const Value key = key_of(members.front());
    const Value group = runtime.sequence(Form::tuple, {key, runtime.list(std::exchange(members, {}))});
    std::get<Sequence*>(group)->group = true;
    groups.push_back(group);
  };
  Value before;
  for (const size_t i : sorted_order(runtime, keys, false)) {
    if (!members.empty() && !equals(runtime, before, keys[i])) close();
    before = keys[i];
    members.push_back(all[i]);
  }
  close();
  return runtime.list(std::move(groups));
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto all = iterate(runtime, value);
  if (all.empty()) return Undefined{.owner = "", .name = "the sequence has no items to compare"};
  const auto key_of = [&](const Value& item) {
    return fold_case(runtime, bound[1] ? get_path(runtime, item, *bound[1]) : item, bound.flag(0, false));
  };
  size_t best = 0;
  Value best_key = key_of(all[0]);
  for (size_t i = 1; i < all.size(); ++i) {
    const Value key = key_of(all[i]);
    const auto ordering = order(runtime, largest ? ">" : "<", key, best_key);
    if (!(largest ? ordering > 0 : ordering < 0)) continue;
    best = i;
    best_key = key;
  }
  return all[best];
}

Value sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const Bound bound(runtime, "sum", arguments, {"attribute", "start"});
  Value total = bound[1] ? *bound[1] : Value(int64_t{0});
  if (as_text(total)) runtime.fail("`sum` does not take texts (use `join`)");
  for (const Value& item : iterate(runtime, value))
    total = binary(runtime, Op::add, total, bound.empty(0) ? item : get_path(runtime, item, *bound[0]));
  return total;
}

/// map(attribute="name", default=...) or map("filter", arguments of the filter...).
Value map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  std::vector<Value> out;
  const bool by_attribute = arguments.positional.empty();
  const Arguments none;
  const Bound attribute(runtime, "map", by_attribute ? arguments : none, {"attribute", "default"});
  if (by_attribute && !attribute[0]) runtime.fail("`map` wants the name of a filter, or attribute=...");
  const Value* otherwise = by_attribute && !attribute.empty(1) ? attribute[1] : nullptr;
  const Filter* filter = nullptr;
  Arguments rest;
  if (!by_attribute) {
    const auto name = plain_text(runtime, arguments.positional[0], "map");
    filter = find_filter(name);
    if (!filter) runtime.fail(fmt::format("the filter `{}` is not supported", name.substr(0, 60)));
    rest = {.positional = {arguments.positional.begin() + 1, arguments.positional.end()},
            .named = arguments.named};
  }
  if (truthy(value))
    for (const Value& item : iterate(runtime, value))
      out.push_back(filter ? filter->apply(runtime, item, rest)
                           : get_path(runtime, item, *attribute[0], otherwise));
  return iterator(runtime, std::move(out));
}

/// select, reject("test", arguments...) and selectattr, rejectattr("path", "test", arguments...).
template <bool wanted, bool by_attribute>
Value select(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto& given = arguments.positional;
  constexpr size_t kFirst = by_attribute ? 1 : 0;
  if (given.size() < kFirst) runtime.fail("this filter wants the name of an attribute");
  const Test* test = nullptr;
  Arguments rest;
  if (given.size() > kFirst) {
    const auto name = plain_text(runtime, given[kFirst], "select");
    test = find_test(name);
    if (!test) runtime.fail(fmt::format("the test `{}` is not supported", name.substr(0, 60)));
    rest = {.positional = {given.begin() + kFirst + 1, given.end()}, .named = arguments.named};
  }
  std::vector<Value> out;
  if (truthy(value)) {
    for (const Value& item : iterate(runtime, value)) {
      runtime.work();
      const Value subject = by_attribute ? get_path(runtime, item, given[0]) : item;
      if ((test ? test->apply(runtime, subject, rest) : truthy(subject)) == wanted) out.push_back(item);
    }
  }
  return iterator(runtime, std::move(out));
}

constexpr Filter kListFilters[] = {
    {"batch", batch},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items},
    {"join", join},
    {"last", last},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

const Filter* find_list_filter(std::string_view name) {
  const auto* filter = std::find_if(std::begin(kListFilters), std::end(kListFilters),
                                    [&](const Filter& f) { return f.name == name; });
  return filter == std::end(kListFilters) ? nullptr : filter;
}

}  // namespace temper::jinja

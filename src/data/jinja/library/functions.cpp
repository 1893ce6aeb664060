// Global functions, tests, and the binding of arguments.
#include <algorithm>
#include <array>
#include <chrono>

#include "src/core/check.h"
#include "src/data/jinja/library.h"
#include "src/data/jinja/runtime.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja2's sandbox

Value make_range(Runtime& runtime, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (!arguments.named.empty() || given.empty() || given.size() > 3)
    runtime.fail("`range` takes 1 to 3 integers");
  std::array<int64_t, 3> n{0, 0, 1};
  for (size_t i = 0; i < given.size(); ++i) {
    const auto value = as_integer(given[i]);
    if (!value) runtime.fail(fmt::format("`range` wants integers, not '{}'", type_name(given[i])));
    n[given.size() == 1 ? 1 : i] = *value;
  }
  const auto [start, stop, step] = n;
  if (step == 0) runtime.fail("the step of `range` is zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange)
      runtime.fail(fmt::format("`range` gives more than {} numbers", kMaxRange));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  runtime.work(static_cast<int64_t>(items.size()));
  return runtime.sequence(Form::range, std::move(items));
}

/// dict(mapping or pairs, name=value...).
Dict make_dict(Runtime& runtime, const char* callee, const Arguments& arguments) {
  if (arguments.positional.size() > 1)
    runtime.fail(fmt::format("`{}` takes at most one positional argument", callee));
  Dict made;
  auto& items = made.items;
  const auto put = [&](const Value& key, const Value& value) {
    check_hashable(runtime, key);
    const size_t place = made.places.find(runtime, items, key);
    if (place == KeyPlaces::kNone) {
      items.emplace_back(key, value);
    } else {
      items[place].second = value;
    }
  };
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (auto* const* dict = std::get_if<Dict*>(&from)) {
      runtime.handle((*dict)->items.size() * sizeof(items[0]));
      items = (*dict)->items;
    } else {
      for (const Value& pair : iterate(runtime, from)) {
        const auto parts = iterate(runtime, pair);
        if (parts.size() != 2)
          runtime.fail(fmt::format("`{}` wants pairs, not {} values", callee, parts.size()));
        put(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) put(name, value);
  return made;
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  Namespace* space = runtime.make_namespace();
  for (const auto& [key, value] : make_dict(runtime, "namespace", arguments).items) {
    const auto name = plain_text(runtime, key, "namespace");
    if (name.starts_with('_')) runtime.fail(fmt::format("a namespace cannot hold `{}`", name));
    space->items.set(name, value);
  }
  return space;
}

constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};

/// "26 Jul 2024", "26 July 2024" or "2024-07-26".
std::optional<std::chrono::year_month_day> parse_date(std::string_view text) {
  std::vector<std::string_view> parts;
  const char separator = text.find('-') != std::string_view::npos ? '-' : ' ';
  for (size_t at = text.find(separator); at != std::string_view::npos; at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  if (parts.size() != 3) return std::nullopt;
  if (separator == '-') std::swap(parts[0], parts[2]);
  auto month = parse_integer(parts[1], 10);
  if (separator == ' ') {
    const auto* name = std::find_if(std::begin(kMonths), std::end(kMonths), [&](std::string_view m) {
      return parts[1] == m || parts[1] == m.substr(0, 3);
    });
    month = name == std::end(kMonths) ? std::nullopt : std::optional<int64_t>(name - kMonths + 1);
  }
  const auto day = parse_integer(parts[0], 10), year = parse_integer(parts[2], 10);
  if (!day || !month || !year || *day < 1 || *day > 31 || *month < 1 || *month > 12 || *year < 1000 ||
      *year > 9999)
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  return date.ok() ? std::optional(date) : std::nullopt;
}

std::string date_field(Runtime& runtime, const std::chrono::year_month_day& date, char field, bool padded) {
  const auto day = static_cast<unsigned>(date.day()), month = static_cast<unsigned>(date.month());
  const int year = static_cast<int>(date.year());
  const auto weekday = std::chrono::weekday(std::chrono::sys_days(date)).c_encoding();
  const auto two = [&](unsigned n) { return padded ? fmt::format("{:02}", n) : fmt::format("{}", n); };
  switch (field) {
    case 'd':
      return two(day);
    case 'm':
      return two(month);
    case 'y':
      return two(static_cast<unsigned>(year % 100));
    case 'Y':
      return fmt::format("{}", year);
    case 'B':
      return std::string(kMonths[month - 1]);
    case 'b':
      return std::string(kMonths[month - 1].substr(0, 3));
    case 'A':
      return std::string(kDays[weekday]);
    case 'a':
      return std::string(kDays[weekday].substr(0, 3));
    case 'F':
      return fmt::format("{}-{:02}-{:02}", year, month, day);
    case '%':
      return "%";
    default:
      runtime.fail(
          fmt::format("`strftime_now` supports %d %m %y %Y %B %b %A %a %F (and %-d %-m), not %{}", field));
  }
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
  const Bound bound(runtime, "strftime_now", arguments, {"format"}, 1);
  if (runtime.date.empty())
    runtime.fail(
        "`strftime_now` would make the text depend on the day: give the date as the variable date_string");
  const auto date = parse_date(runtime.date);
  if (!date)
    runtime.fail(
        fmt::format("date_string is \"{}\", which is neither like \"26 Jul 2024\" nor like \"2024-07-26\"",
                    runtime.date.substr(0, 60)));
  const auto format = bound.text(0);
  runtime.handle(64 * format.size());
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const bool bare = i + 1 < format.size() && format[i + 1] == '-';
    i += bare ? 2 : 1;
    out += date_field(runtime, *date, i < format.size() ? format[i] : ' ', !bare);
  }
  return runtime.keep(std::move(out));
}

}  // namespace

Bound::Bound(Runtime& runtime, std::string_view callee, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required)
    : runtime_(runtime), callee_(callee), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size())
    runtime.fail(fmt::format("`{}` takes at most {} arguments here, {} are given", callee, names.size(),
                             arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) runtime.fail(fmt::format("`{}` takes no argument `{}`", callee, name));
    const auto i = static_cast<size_t>(place - names.begin());
    if (values_[i]) runtime.fail(fmt::format("the argument `{}` of `{}` is given twice", name, callee));
    values_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) runtime.fail(fmt::format("`{}` wants the argument `{}`", callee, *(names.begin() + i)));
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (!values_[i]) return otherwise;
  if (const auto n = as_integer(*values_[i])) return *n;
  runtime_.fail(
      fmt::format("argument {} of `{}` is '{}', not an integer", i + 1, callee_, type_name(*values_[i])));
}

std::string_view Bound::text(size_t i, std::string_view otherwise) const {
  return values_[i] ? plain_text(runtime_, *values_[i], callee_) : otherwise;
}

std::optional<Function> find_function(std::string_view name) {
  if (name == "range") return Function::range;
  if (name == "dict") return Function::dict;
  if (name == "namespace") return Function::make_namespace;
  if (name == "raise_exception") return Function::raise_exception;
  if (name == "strftime_now") return Function::strftime_now;
  if (name == "cycler") return Function::cycler;
  if (name == "joiner") return Function::joiner;
  return std::nullopt;
}

Value call_function(Runtime& runtime, Function function, const Arguments& arguments) {
  switch (function) {
    case Function::range:
      return make_range(runtime, arguments);
    case Function::dict:
      return runtime.dict(make_dict(runtime, "dict", arguments));
    case Function::make_namespace:
      return make_namespace(runtime, arguments);
    case Function::strftime_now:
      return strftime_now(runtime, arguments);
    case Function::cycler:
      if (arguments.positional.empty() || !arguments.named.empty()) runtime.fail("`cycler` wants items");
      return runtime.cycler(arguments.positional);
    case Function::joiner: {
      const Bound bound(runtime, "joiner", arguments, {"sep"});
      return runtime.joiner(bound.text(0, ", "));
    }
    case Function::raise_exception:
      break;
  }
  const Bound bound(runtime, "raise_exception", arguments, {"message"}, 1);
  runtime.fail_raised(to_text(runtime, *bound[0]));
}

}  // namespace temper::jinja

// The smallest parts of answers: numbers, names, functions, groups, matrices.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/rl/rewards/math/parser.h"
#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr int64_t kMostLevels = 40;
constexpr size_t kMostDigits = 18;

constexpr auto kNames = std::to_array<std::string_view>(
    {"\\alpha", "\\beta",       "\\gamma", "\\delta",  "\\epsilon", "\\varepsilon", "\\zeta",
     "\\eta",   "\\theta",      "\\kappa", "\\lambda", "\\mu",      "\\nu",         "\\xi",
     "\\pi",    "\\rho",        "\\sigma", "\\tau",    "\\phi",     "\\chi",        "\\psi",
     "\\omega", "\\Gamma",      "\\Delta", "\\Theta",  "\\Phi",     "\\Psi",        "\\Omega",
     "\\infty", "\\varnothing", "\\ell",   "\\angle",  "\\triangle"});
constexpr auto kFunctions = std::to_array<std::string_view>(
    {"\\sin",  "\\cos",  "\\tan", "\\cot",    "\\sec",    "\\csc",    "\\log",
     "\\ln",   "\\lg",   "\\exp", "\\arcsin", "\\arccos", "\\arctan", "\\sinh",
     "\\cosh", "\\tanh", "\\gcd", "\\max",    "\\min",    "\\deg",    "\\det"});
constexpr auto kMarks = std::to_array<std::string_view>(
    {"\\overline", "\\vec", "\\hat", "\\mathbb", "\\mathcal", "\\overrightarrow", "\\tilde", "\\dot"});
constexpr auto kMatrices = std::to_array<std::string_view>(
    {"{pmatrix}", "{bmatrix}", "{matrix}", "{array}", "{smallmatrix}", "{Bmatrix}", "{vmatrix}"});

template <typename List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// 12, 0.5, 0.1(6).
Sum number_value(std::string_view text) {
  int64_t digits = 0, scale = 1, repeated = 0, period = 1;
  bool fraction = false, repeats = false;
  for (const char c : text) {
    if (c == '.') fraction = true;
    if (c == '(') repeats = true;
    if (!is_digit(c)) continue;
    int64_t& value = repeats ? repeated : digits;
    value = value * 10 + (c - '0');
    if (fraction && !repeats) scale *= 10;
    if (repeats) period *= 10;
  }
  const Fraction plain(digits, scale);
  return repeats ? plain + Fraction(repeated, period - 1) / Fraction(scale) : plain;
}

bool is_whole(const std::string& token) {
  return token.size() <= kMostDigits && std::all_of(token.begin(), token.end(), is_digit);
}

/// Words are compared without case, but names of points are not.
std::string folded_word(std::string word) {
  constexpr auto kShort = std::to_array<std::string_view>({"yes", "no", "odd", "all"});
  std::string lower = word;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return word.size() > 3 || contains(kShort, lower) ? lower : word;
}

}  // namespace

class MathParser::Level {
 public:
  explicit Level(MathParser& parser) : parser_(parser) {
    if (++parser_.level_ > kMostLevels) throw NoValue{};
  }
  ~Level() { --parser_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  MathParser& parser_;
};

Sum MathParser::primary() {
  const Level level(*this);
  if (is_number()) return number();
  if (is_letter_at()) return letters();
  if (is("{")) return braces();
  if (is("|")) return bars();
  if (is("(") || is("[") || is("\\{") || is("\\langle") || is("\\lfloor") || is("\\lceil")) return group();
  return command();
}

Sum MathParser::number() {
  const std::string text = take();
  const size_t digits = static_cast<size_t>(std::count_if(text.begin(), text.end(), is_digit));
  if (digits > kMostDigits) return Sum::atom(text);
  const Sum value = number_value(text);
  if (!is_whole(text)) return value;
  if (const std::optional<Sum> part = mixed_part()) return algebra_.add(value, *part);
  return value;
}

/// Behind a whole number: ` 1/2` or \frac{1}{2} of plain numbers.
std::optional<Sum> MathParser::mixed_part() {
  const bool gap = is(kGap) || is(kBreak);
  std::string above, below;
  if (gap && is_number(1) && is("/", 2) && is_number(3)) {
    above = tokens_[at_ + 1];
    below = tokens_[at_ + 3];
    at_ += 4;
    if (is("^") || is("/") || is("!")) throw NoValue{};
  } else if (is("\\frac") && is("{", 1) && is_number(2) && is("}", 3) && is("{", 4) && is_number(5) &&
             is("}", 6)) {
    above = tokens_[at_ + 2];
    below = tokens_[at_ + 5];
    at_ += 7;
  } else {
    return std::nullopt;
  }
  if (!is_whole(above) || !is_whole(below)) throw NoValue{};
  return Sum(Fraction(std::stoll(above), std::stoll(below)));
}

Sum MathParser::letters() {
  size_t run = 0;
  while (is_letter_at(run)) ++run;
  if (is("^", run) || is("_", run)) --run;
  std::string word;
  for (size_t i = 0; i < run; ++i) word += tokens_[at_ + i];
  const std::string folded = folded_word(word);
  if (run > 2 || folded == "no") {
    at_ += run;
    return subscripted(folded);
  }
  const std::string letter = take();
  const bool function = (letter == "f" || letter == "g" || letter == "h" || letter == "P") && is("(");
  if (function) return Sum::atom(letter + "(" + group().key() + ")");
  return subscripted(letter);
}

Sum MathParser::subscripted(std::string name) {
  if (skip("_")) name += "_" + primary().key();
  while (skip("'")) name += "'";
  return Sum::atom(std::move(name));
}

Sum MathParser::command() {
  const std::string name = take();
  if (contains(kNames, name)) return subscripted(name);
  if (contains(kFunctions, name)) return --at_, function();
  if (contains(kMarks, name)) return Sum::atom(name + "(" + primary().key() + ")");
  if (name == "\\sqrt") return root();
  if (name.starts_with("\\begin{")) return --at_, matrix();
  if (name == "\\frac" || name == "\\binom") {
    if (!is("{")) throw NoValue{};
    const Sum above = braces();
    if (!is("{")) throw NoValue{};
    const Sum below = braces();
    return name == "\\frac" ? algebra_.divide(above, below)
                            : Sum::atom("binom(" + above.key() + "|" + below.key() + ")");
  }
  throw NoValue{};
}

Sum MathParser::root() {
  int64_t degree = 2;
  if (skip("[")) {
    const std::optional<Fraction> value = sum().number();
    if (!value || !value->whole() || value->above() < 2 || value->above() > 64) throw NoValue{};
    degree = value->above();
    need("]");
  }
  return algebra_.root(primary(), degree);
}

Sum MathParser::function() {
  std::string name = take();
  std::optional<Sum> power;
  while (is("^") || is("_")) {
    if (skip("^")) {
      power = exponent();
    } else {
      ++at_;
      name += "_" + primary().key();
    }
    if (is(kGap) || is(kBreak)) ++at_;  // \log_2 3
  }
  if (power && power->number() == Fraction(-1)) {
    name = "\\arc" + name.substr(1);
    power.reset();
  }
  Sum argument;
  if (is("(") || is("{")) {
    argument = primary();
  } else {
    argument = factor();
    while (starts_factor() && !contains(kFunctions, tokens_[at_]))
      argument = algebra_.multiply(argument, factor());
  }
  const Sum value = Sum::atom(name + "(" + argument.key() + ")");
  return power ? algebra_.power(value, *power) : value;
}

/// A group of TeX, which may hold a list in place of a set.
Sum MathParser::braces() {
  need("{");
  List inside = list();
  need("}");
  if (inside.items.size() == 1) return inside.items[0].sum;
  std::vector<Sum> parts;
  for (Item& item : inside.items) parts.push_back(std::move(item.sum));
  return make_group("\\{", std::move(parts), "\\}");
}

Sum MathParser::bars() {
  need("|");
  ++bars_;
  const Sum inside = sum();
  --bars_;
  need("|");
  const std::optional<Fraction> number = inside.number();
  if (number) return number->negative() ? -*number : *number;
  return Sum::atom("abs(" + inside.key() + ")");
}

Sum MathParser::make_group(std::string open, std::vector<Sum> parts, const std::string& close) {
  if (open == "\\{") {
    std::sort(parts.begin(), parts.end(), [](const Sum& a, const Sum& b) { return a.key() < b.key(); });
    const auto same = [](const Sum& a, const Sum& b) { return a.key() == b.key(); };
    parts.erase(std::unique(parts.begin(), parts.end(), same), parts.end());
  }
  std::string text = "group" + open;
  for (const Sum& part : parts) text += part.key() + "|";
  text += close;
  groups_[text] = {std::move(open), std::move(parts)};
  return Sum::atom(text);
}

Sum MathParser::group() {
  const std::string open = take();
  const bool set = open == "\\{", round = open == "(";
  if (set && skip("\\}")) return Sum::atom("\\varnothing");
  const int64_t bars = std::exchange(bars_, 0);
  sets_ += set;
  List inside = list();
  sets_ -= set;
  if (set && inside.items.size() == 1 && (is("|") || is(":")))
    return bars_ = bars, builder(inside.items[0].sum);
  bars_ = bars;
  const std::string close = take();
  std::vector<Sum> parts;
  for (Item& item : inside.items) parts.push_back(std::move(item.sum));
  const bool bracket = open == "[" && close == "]";
  if (parts.size() == 1 && ((round && close == ")") || (bracket && parts[0].key().starts_with("1*matrix"))))
    return parts[0];
  const bool interval = parts.size() == 2 && (round || open == "[") && (close == ")" || close == "]");
  const bool pair = (set && close == "\\}") || (round && close == ")") || bracket ||
                    (open == "\\langle" && close == "\\rangle") ||
                    (open == "\\lfloor" && close == "\\rfloor") || (open == "\\lceil" && close == "\\rceil");
  if (!interval && !pair) throw NoValue{};
  return make_group(open, std::move(parts), close);
}

/// \{x | x > 5\} is the interval; of other conditions the text is kept.
Sum MathParser::builder(const Sum& element) {
  ++at_;
  const List conditions = list();
  need("\\}");
  if (conditions.items.size() != 1) throw NoValue{};
  const Item& condition = conditions.items[0];
  if (!condition.name.empty() && variable(element) == condition.name) return condition.sum;
  return Sum::atom("builder(" + element.key() + "|" + condition.sum.key() + ")");
}

Sum MathParser::matrix() {
  const Level level(*this);
  const std::string kind = take().substr(6);
  if (!contains(kMatrices, kind)) throw NoValue{};
  if (kind == "{array}" && skip("{"))
    while (take() != "}") {
    }
  std::string text = kind == "{vmatrix}" ? "determinant(" : "matrix(";
  while (!is("\\end" + kind)) {
    text += item().sum.key();
    if (skip("&")) {
      text += "&";
    } else if (!skip("\\\\")) {
      break;
    } else if (!is("\\end" + kind)) {
      text += ";";
    }
  }
  need("\\end" + kind);
  return Sum::atom(text + ")");
}

const std::vector<Sum>* MathParser::set_elements(const Sum& sum) const {
  const std::optional<std::string> name = sum.name();
  const auto found = name ? groups_.find(*name) : groups_.end();
  return found != groups_.end() && found->second.open == "\\{" ? &found->second.parts : nullptr;
}

}  // namespace temper

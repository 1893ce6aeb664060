#include "src/rl/rewards/math/primary.h"

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

class MathPrimary::Level {
 public:
  explicit Level(MathPrimary& primary) : primary_(primary) {
    if (++primary_.level_ > kMostLevels) throw NoValue{};
  }
  ~Level() { --primary_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  MathPrimary& primary_;
};

Sum MathPrimary::primary() {
  const Level level(*this);
  if (c_.is_number()) return number();
  if (c_.is_letter_at()) return letters();
  if (c_.is("{")) return braces();
  if (c_.is("|")) return bars();
  if (c_.is("(") || c_.is("[") || c_.is("\\{") || c_.is("\\langle") || c_.is("\\lfloor") || c_.is("\\lceil"))
    return group();
  return command();
}

Sum MathPrimary::number() {
  const std::string text = c_.take();
  const size_t digits = static_cast<size_t>(std::count_if(text.begin(), text.end(), is_digit));
  if (digits > kMostDigits) return Sum::atom(text);
  const Sum value = number_value(text);
  if (!is_whole(text)) return value;
  if (const std::optional<Sum> part = mixed_part()) return algebra_.add(value, *part);
  return value;
}

/// Behind a whole number: ` 1/2` or \frac{1}{2} of plain numbers.
std::optional<Sum> MathPrimary::mixed_part() {
  const bool gap = c_.is(kGap) || c_.is(kBreak);
  std::string above, below;
  if (gap && c_.is_number(1) && c_.is("/", 2) && c_.is_number(3)) {
    above = c_.token(1);
    below = c_.token(3);
    c_.advance(4);
    if (c_.is("^") || c_.is("/") || c_.is("!")) throw NoValue{};
  } else if (c_.is("\\frac") && c_.is("{", 1) && c_.is_number(2) && c_.is("}", 3) && c_.is("{", 4) &&
             c_.is_number(5) && c_.is("}", 6)) {
    above = c_.token(2);
    below = c_.token(5);
    c_.advance(7);
  } else {
    return std::nullopt;
  }
  if (!is_whole(above) || !is_whole(below)) throw NoValue{};
  return Sum(Fraction(std::stoll(above), std::stoll(below)));
}

Sum MathPrimary::letters() {
  size_t run = 0;
  while (c_.is_letter_at(run)) ++run;
  if (c_.is("^", run) || c_.is("_", run)) --run;
  std::string word;
  for (size_t i = 0; i < run; ++i) word += c_.token(i);
  const std::string folded = folded_word(word);
  if (run > 2 || folded == "no") {
    c_.advance(run);
    return subscripted(folded);
  }
  const std::string letter = c_.take();
  const bool function = (letter == "f" || letter == "g" || letter == "h" || letter == "P") && c_.is("(");
  if (function) return Sum::atom(letter + "(" + group().key() + ")");
  return subscripted(letter);
}

Sum MathPrimary::subscripted(std::string name) {
  if (c_.skip("_")) name += "_" + primary().key();
  while (c_.skip("'")) name += "'";
  return Sum::atom(std::move(name));
}

Sum MathPrimary::command() {
  const std::string name = c_.take();
  if (contains(kNames, name)) return subscripted(name);
  if (contains(kFunctions, name)) return c_.step_back(), function();
  if (contains(kMarks, name)) return Sum::atom(name + "(" + primary().key() + ")");
  if (name == "\\sqrt") return root();
  if (name.starts_with("\\begin{")) return c_.step_back(), matrix();
  if (name == "\\frac" || name == "\\binom") {
    if (!c_.is("{")) throw NoValue{};
    const Sum above = braces();
    if (!c_.is("{")) throw NoValue{};
    const Sum below = braces();
    return name == "\\frac" ? algebra_.divide(above, below)
                            : Sum::atom("binom(" + above.key() + "|" + below.key() + ")");
  }
  throw NoValue{};
}

Sum MathPrimary::root() {
  int64_t degree = 2;
  if (c_.skip("[")) {
    const std::optional<Fraction> value = parser_.sum().number();
    if (!value || !value->whole() || value->above() < 2 || value->above() > 64) throw NoValue{};
    degree = value->above();
    c_.need("]");
  }
  return algebra_.root(primary(), degree);
}

Sum MathPrimary::function() {
  std::string name = c_.take();
  std::optional<Sum> power;
  while (c_.is("^") || c_.is("_")) {
    if (c_.skip("^")) {
      power = parser_.exponent();
    } else {
      c_.advance();
      name += "_" + primary().key();
    }
    if (c_.is(kGap) || c_.is(kBreak)) c_.advance();  // \log_2 3
  }
  if (power && power->number() == Fraction(-1)) {
    name = "\\arc" + name.substr(1);
    power.reset();
  }
  Sum argument;
  if (c_.is("(") || c_.is("{")) {
    argument = primary();
  } else {
    argument = parser_.factor();
    while (parser_.starts_factor() && !contains(kFunctions, c_.token()))
      argument = algebra_.multiply(argument, parser_.factor());
  }
  const Sum value = Sum::atom(name + "(" + argument.key() + ")");
  return power ? algebra_.power(value, *power) : value;
}

/// A group of TeX, which may hold a list in place of a set.
Sum MathPrimary::braces() {
  c_.need("{");
  MathList inside = parser_.list();
  c_.need("}");
  if (inside.items.size() == 1) return inside.items[0].sum;
  std::vector<Sum> parts;
  for (MathItem& item : inside.items) parts.push_back(std::move(item.sum));
  return groups_.make("\\{", std::move(parts), "\\}");
}

Sum MathPrimary::bars() {
  c_.need("|");
  ++c_.bars;
  const Sum inside = parser_.sum();
  --c_.bars;
  c_.need("|");
  const std::optional<Fraction> number = inside.number();
  if (number) return number->negative() ? -*number : *number;
  return Sum::atom("abs(" + inside.key() + ")");
}

Sum MathPrimary::group() {
  const std::string open = c_.take();
  const bool set = open == "\\{", round = open == "(";
  if (set && c_.skip("\\}")) return Sum::atom("\\varnothing");
  const int64_t bars = std::exchange(c_.bars, 0);
  c_.sets += set;
  MathList inside = parser_.list();
  c_.sets -= set;
  if (set && inside.items.size() == 1 && (c_.is("|") || c_.is(":")))
    return c_.bars = bars, builder(inside.items[0].sum);
  c_.bars = bars;
  const std::string close = c_.take();
  std::vector<Sum> parts;
  for (MathItem& item : inside.items) parts.push_back(std::move(item.sum));
  const bool bracket = open == "[" && close == "]";
  if (parts.size() == 1 && ((round && close == ")") || (bracket && parts[0].key().starts_with("1*matrix"))))
    return parts[0];
  const bool interval = parts.size() == 2 && (round || open == "[") && (close == ")" || close == "]");
  const bool pair = (set && close == "\\}") || (round && close == ")") || bracket ||
                    (open == "\\langle" && close == "\\rangle") ||
                    (open == "\\lfloor" && close == "\\rfloor") || (open == "\\lceil" && close == "\\rceil");
  if (!interval && !pair) throw NoValue{};
  return groups_.make(open, std::move(parts), close);
}

/// \{x | x > 5\} is the interval; of other conditions the text is kept.
Sum MathPrimary::builder(const Sum& element) {
  c_.advance();
  const MathList conditions = parser_.list();
  c_.need("\\}");
  if (conditions.items.size() != 1) throw NoValue{};
  const MathItem& condition = conditions.items[0];
  if (!condition.name.empty() && groups_.variable(element) == condition.name) return condition.sum;
  return Sum::atom("builder(" + element.key() + "|" + condition.sum.key() + ")");
}

Sum MathPrimary::matrix() {
  const Level level(*this);
  const std::string kind = c_.take().substr(6);
  if (!contains(kMatrices, kind)) throw NoValue{};
  if (kind == "{array}" && c_.skip("{"))
    while (c_.take() != "}") {
    }
  std::string text = kind == "{vmatrix}" ? "determinant(" : "matrix(";
  while (!c_.is("\\end" + kind)) {
    text += parser_.item().sum.key();
    if (c_.skip("&")) {
      text += "&";
    } else if (!c_.skip("\\\\")) {
      break;
    } else if (!c_.is("\\end" + kind)) {
      text += ";";
    }
  }
  c_.need("\\end" + kind);
  return Sum::atom(text + ")");
}

}  // namespace temper

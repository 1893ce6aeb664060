#include "src/rl/rewards/math/units.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr size_t kLongestUnit = 64;

/// Spellings that are not the singular, the name and a full stop or `s` behind it.
constexpr auto kMeasures =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"centimeter", "cm"},
                                                                  {"centimetre", "cm"},
                                                                  {"millimeter", "mm"},
                                                                  {"millimetre", "mm"},
                                                                  {"kilometer", "km"},
                                                                  {"kilometre", "km"},
                                                                  {"meter", "m"},
                                                                  {"metre", "m"},
                                                                  {"decimeter", "dm"},
                                                                  {"inch", "in"},
                                                                  {"inches", "in"},
                                                                  {"foot", "ft"},
                                                                  {"feet", "ft"},
                                                                  {"yard", "yd"},
                                                                  {"mile", "mi"},
                                                                  {"gram", "g"},
                                                                  {"kilogram", "kg"},
                                                                  {"milligram", "mg"},
                                                                  {"tonne", "t"},
                                                                  {"ton", "t"},
                                                                  {"pound", "lb"},
                                                                  {"ounce", "oz"},
                                                                  {"liter", "L"},
                                                                  {"litre", "L"},
                                                                  {"l", "L"},
                                                                  {"milliliter", "mL"},
                                                                  {"millilitre", "mL"},
                                                                  {"ml", "mL"},
                                                                  {"gallon", "gal"},
                                                                  {"quart", "qt"},
                                                                  {"second", "s"},
                                                                  {"sec", "s"},
                                                                  {"minute", "min"},
                                                                  {"hour", "h"},
                                                                  {"hr", "h"},
                                                                  {"days", "day"},
                                                                  {"mph", "mi/h"},
                                                                  {"kph", "km/h"},
                                                                  {"kmh", "km/h"},
                                                                  {"degree", "degree"},
                                                                  {"deg", "degree"},
                                                                  {"radian", "rad"},
                                                                  {"dollar", "dollar"},
                                                                  {"usd", "dollar"},
                                                                  {"buck", "dollar"},
                                                                  {"cent", "cent"},
                                                                  {"percent", "%"},
                                                                  {"newton", "N"},
                                                                  {"joule", "J"},
                                                                  {"watt", "W"},
                                                                  {"volt", "V"},
                                                                  {"kelvin", "K"},
                                                                  {"ampere", "A"},
                                                                  {"hertz", "Hz"},
                                                                  {"persons", "person"},
                                                                  {"people", "person"},
                                                                  {"children", "child"},
                                                                  {"men", "man"},
                                                                  {"women", "woman"},
                                                                  {"mice", "mouse"},
                                                                  {"geese", "goose"},
                                                                  {"sheep", "sheep"},
                                                                  {"loaves", "loaf"},
                                                                  {"halves", "half"},
                                                                  {"vertices", "vertex"},
                                                                  {"sq.units", "unit^2"},
                                                                  {"dice", "die"},
                                                                  {"pence", "penny"},
                                                                  {"fish", "fish"},
                                                                  {"yrs", "year"}});

constexpr auto kNames = std::to_array<std::string_view>(
    {"am",  "cm", "dm", "ft", "g",  "gal", "h",  "Hz",  "in", "J", "kg", "km", "L",  "lb", "m",   "mg", "mi",
     "min", "mL", "mm", "N",  "oz", "pm",  "qt", "rad", "s",  "t", "V",  "W",  "yd", "K",  "p.m", "a.m"});

/// What problems count.
constexpr auto kNouns = std::to_array<std::string_view>(
    {"acre",        "adult",       "album",     "angle",     "animal",      "answer",     "apple",
     "arrangement", "bag",         "ball",      "balloon",   "banana",      "basket",     "bead",
     "bean",        "bee",         "bill",      "bird",      "block",       "blueberrie", "boat",
     "book",        "bottle",      "bow",       "box",       "boy",         "bracelet",   "brick",
     "bulb",        "bus",         "bushel",    "button",    "cake",        "calorie",    "candie",
     "candle",      "candy",       "car",       "card",      "carrot",      "case",       "cat",
     "chair",       "chicken",     "child",     "chocolate", "choice",      "class",      "coin",
     "color",       "combination", "committee", "cookie",    "corner",      "cow",        "crayon",
     "cube",        "cup",         "cupcake",   "customer",  "cut",         "cycle",      "day",
     "desk",        "diagonal",    "die",       "digit",     "dime",        "divisor",    "dog",
     "dot",         "doll",        "donut",     "dress",     "drop",        "duck",       "edge",
     "egg",         "element",     "employee",  "envelope",  "euro",        "face",       "factor",
     "farmer",      "fish",        "flavor",    "flower",    "friend",      "frog",       "function",
     "game",        "gift",        "girl",      "glass",     "goal",        "goat",       "grade",
     "grain",       "guest",       "handshake", "hat",       "hen",         "hole",       "horse",
     "house",       "integer",     "item",      "jar",       "jelly",       "job",        "key",
     "kid",         "kite",        "lap",       "leave",     "leg",         "lemon",      "letter",
     "line",        "loaf",        "lollipop",  "man",       "mango",       "marble",     "match",
     "meal",        "member",      "method",    "mint",      "month",       "mouse",      "move",
     "muffin",      "necklace",    "nickel",    "note",      "number",      "onion",      "option",
     "orange",      "outcome",     "pack",      "package",   "page",        "pair",       "pancake",
     "paper",       "part",        "party",     "path",      "patient",     "peach",      "pear",
     "pebble",      "pen",         "pencil",    "penny",     "pennie",      "period",     "permutation",
     "person",      "petal",       "phone",     "photo",     "picture",     "pie",        "piece",
     "pig",         "pill",        "pint",      "pizza",     "place",       "plant",      "plate",
     "player",      "point",       "pole",      "potatoe",   "present",     "prime",      "prize",
     "problem",     "puppy",       "puppie",    "quarter",   "question",    "rabbit",     "rectangle",
     "ribbon",      "ring",        "room",      "root",      "rose",        "round",      "row",
     "runner",      "sandwich",    "score",     "seat",      "seed",        "segment",    "sheep",
     "sheet",       "shell",       "shirt",     "shoe",      "side",        "slice",      "sock",
     "solution",    "song",        "spider",    "spoon",     "square",      "stamp",      "star",
     "step",        "stick",       "sticker",   "stone",     "strawberrie", "student",    "subset",
     "sweet",       "table",       "team",      "teacher",   "term",        "test",       "ticket",
     "tile",        "time",        "toy",       "train",     "tree",        "triangle",   "trip",
     "truck",       "turn",        "unit",      "value",     "vertex",      "vote",       "way",
     "week",        "wheel",       "window",    "win",       "woman",       "word",       "worker",
     "year",        "yen"});

std::optional<std::string> known_word(std::string_view word) {
  for (const auto& [spelling, name] : kMeasures)
    if (spelling == word) return std::string(name);
  if (contains(kNames, word) || contains(kNouns, word)) return std::string(word);
  return std::nullopt;
}

std::optional<std::string> simple_unit(std::string_view word) {
  if (auto name = known_word(word)) return name;
  if (word.size() > 2 && word.ends_with('.')) return simple_unit(word.substr(0, word.size() - 1));
  if (word.size() > 3 && word.ends_with("es"))
    if (auto name = known_word(word.substr(0, word.size() - 2))) return name;
  if (word.size() > 2 && word.ends_with('s')) return known_word(word.substr(0, word.size() - 1));
  return std::nullopt;
}

constexpr auto kSquares = std::to_array<std::string_view>({"square", "sq."});
constexpr auto kCubes = std::to_array<std::string_view>({"cubic", "cu."});
constexpr auto kPowers = std::to_array<std::pair<std::string_view, std::string_view>>({{"^2", "^2"},
                                                                                       {"^{2}", "^2"},
                                                                                       {"squared", "^2"},
                                                                                       {"\xC2\xB2", "^2"},
                                                                                       {"^3", "^3"},
                                                                                       {"^{3}", "^3"},
                                                                                       {"cubed", "^3"},
                                                                                       {"\xC2\xB3", "^3"}});

/// The unit of which a power is written, with the power.
std::optional<std::string> raised_unit(std::string_view text) {
  std::string_view power;
  for (const std::string_view word : kSquares)
    if (text.starts_with(word) && text.size() > word.size()) text.remove_prefix(word.size()), power = "^2";
  for (const std::string_view word : kCubes)
    if (text.starts_with(word)) text.remove_prefix(word.size()), power = "^3";
  for (const auto& [written, value] : kPowers)
    if (power.empty() && text.ends_with(written)) text.remove_suffix(written.size()), power = value;
  if (power.empty()) return std::nullopt;
  std::optional<std::string> name = simple_unit(text);
  if (name) name->append(power);
  return name;
}

std::string_view without_power(std::string_view text) {
  for (const auto& [written, value] : kPowers)
    if (text.ends_with(written) && written[0] != 's' && written[0] != 'c')
      return text.substr(0, text.size() - written.size());
  return text;
}

bool ends_in_command(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  return begin > 0 && begin < text.size() && text[begin - 1] == '\\';
}

/// A Greek letter at the end of the text, or a letter that is no word.
bool ends_in_variable(std::string_view text) {
  if (ends_in_command(text)) return true;
  if (!is_letter(text.back())) return false;
  const std::string_view before = text.substr(0, text.size() - 1), near = strip(before);
  const bool in_word = !before.empty() && is_letter(before.back());
  return !in_word && (near.empty() || !is_letter(near.back()) || ends_in_command(near));
}

std::string without_blanks(std::string_view text) {
  std::string result(text);
  std::erase_if(result, is_space);
  return result;
}

}  // namespace

std::optional<std::string> unit_name(std::string_view text) {
  if (text.size() > kLongestUnit || text.empty()) return std::nullopt;
  if (auto name = simple_unit(text)) return name;
  if (auto name = raised_unit(text)) return name;
  const size_t slash = text.find('/'), per = text.find("per", 1),
               at = slash != std::string_view::npos ? slash : per;
  if (at == std::string_view::npos) return std::nullopt;
  const auto above = unit_name(text.substr(0, at)),
             below = unit_name(text.substr(at + (at == slash ? 1 : 3)));
  if (!above || !below) return std::nullopt;
  return *above + "/" + *below;
}

bool is_plain_unit_word(std::string_view word) {
  constexpr auto kParts = std::to_array<std::string_view>({"per", "square", "cubic", "squared", "cubed"});
  if (contains(kParts, word) || word == "g") return true;
  return word.size() > 1 && word != "in" && word != "min" && simple_unit(word);
}

bool units_agree(std::string_view a, std::string_view b) {
  constexpr std::string_view kAny = "unit";
  if (a.empty() || b.empty() || a == b) return true;
  const bool any = a.starts_with(kAny) || b.starts_with(kAny);
  auto power = [](std::string_view unit) { return unit.substr(std::min(unit.find('^'), unit.size())); };
  return any && power(a) == power(b);
}

WithoutUnit drop_unit_words(std::string_view text) {
  std::string_view rest = text, last_word;
  if (rest.ends_with('.')) rest.remove_suffix(1);
  const std::string_view whole = rest;
  while (rest.size() + kLongestUnit > whole.size()) {
    const std::string_view word_end = strip(without_power(rest));
    size_t begin = word_end.size();
    while (begin > 0 && is_letter(word_end[begin - 1])) --begin;
    const bool command = begin > 0 && word_end[begin - 1] == '\\';
    const std::string_view word = word_end.substr(begin);
    if (command || !is_plain_unit_word(word)) break;
    last_word = word;
    rest = strip(word_end.substr(0, begin));
  }
  if (rest.empty() || last_word.empty()) return {text};
  const auto unit = unit_name(without_blanks(whole.substr(rest.size())));
  const bool group = rest.find_last_of("})]$%") == rest.size() - 1;
  const bool variable = last_word.size() > 1 && ends_in_variable(rest);  // "m g" is a product
  return unit && (is_digit(rest.back()) || group || variable) ? WithoutUnit{rest, *unit} : WithoutUnit{text};
}

}  // namespace temper

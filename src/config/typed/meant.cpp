#include "src/config/typed/meant.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace temper {
namespace {

using Kind = TomlNode::Kind;

struct OtherName {
  std::string_view name, word;
};
constexpr std::array kOtherNames{
    OtherName{"bfloat16", "bf16"}, OtherName{"float32", "fp32"}, OtherName{"float", "fp32"},
    OtherName{"float64", "fp64"},  OtherName{"double", "fp64"},  OtherName{"float16", "fp16"},
    OtherName{"half", "fp16"},     OtherName{"warning", "warn"},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// The whole of `text` as a number, white space at both ends aside.
template <class T>
std::optional<T> number_in(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Writes a text into `node` as a value of another type; leaves it a text where it is none.
struct Scalar {
  TomlNode& node;

  void operator()(const bool*) const {
    const std::string word = lower(node.text);
    if (word != "true" && word != "false") return;
    node.kind = Kind::boolean;
    node.boolean = word == "true";
  }
  void operator()(const int64_t*) const {
    const std::optional<int64_t> value = number_in<int64_t>(node.text);
    if (!value) return;
    node.kind = Kind::integer;
    node.integer = *value;
  }
  void operator()(const uint64_t*) const { (*this)(static_cast<const int64_t*>(nullptr)); }
  void operator()(const double*) const {
    const std::optional<double> value = number_in<double>(node.text);
    if (!value || !std::isfinite(*value)) return;
    node.kind = Kind::real;
    node.real = *value;
  }
  template <class T>
  void operator()(const std::optional<T>*) const {
    (*this)(static_cast<const T*>(nullptr));
  }
  template <class T>
  void operator()(const T*) const {}  // texts, lists and tables stay what they are
};

}  // namespace

std::optional<std::string_view> meant_word(std::string_view text, std::span<const std::string_view> words) {
  if (const auto same = std::find(words.begin(), words.end(), text); same != words.end()) return *same;
  std::string name = lower(text);
  if (constexpr std::string_view kTorch = "torch."; name.starts_with(kTorch)) name.erase(0, kTorch.size());
  for (const OtherName& other : kOtherNames)
    if (other.name == name) name = other.word;
  const auto found = std::find(words.begin(), words.end(), name);
  return found == words.end() ? std::nullopt : std::optional(*found);
}

TomlNode as_meant(const TomlNode& node, const Field& field) {
  const KeySpec& spec = field.spec;
  TomlNode meant = node;
  if (spec.format == Format::duration && node.kind == Kind::date) meant.kind = Kind::text;  // 03:45:00
  if (meant.kind != Kind::text) return meant;
  if (const auto word = meant_word(meant.text, spec.choices)) meant.text = *word;
  if (!spec.absent.empty() && lower(meant.text) == spec.absent) meant.text = spec.absent;
  if (spec.format != Format::duration) std::visit(Scalar{meant}, field.target);
  return meant;
}

}  // namespace temper

#include "src/rl/rewards/math/signs.h"

#include <array>
#include <utility>

#include "src/rl/rewards/text.h"

namespace temper {
namespace {

using Sign = std::pair<std::string_view, std::string_view>;

// A command ends in a blank: a letter may follow the sign.
constexpr auto kSigns = std::to_array<Sign>({{"−", "-"},
                                             {"﹣", "-"},
                                             {"‐", "-"},
                                             {"‑", "-"},
                                             {"°", "\\degree "},
                                             {"º", "\\degree "},
                                             {"\u00A0", " "},
                                             {"\u2009", " "},
                                             {"\u202F", " "},
                                             {"\u3000", " "},
                                             {"\u200B", ""},
                                             {"×", "\\cdot "},
                                             {"·", "\\cdot "},
                                             {"⋅", "\\cdot "},
                                             {"∙", "\\cdot "},
                                             {"∗", "\\cdot "},
                                             {"÷", "/"},
                                             {"∕", "/"},
                                             {"⁄", "/"},
                                             {"π", "\\pi "},
                                             {"𝜋", "\\pi "},
                                             {"∞", "\\infty "},
                                             {"≤", "\\le "},
                                             {"≥", "\\ge "},
                                             {"⩽", "\\le "},
                                             {"⩾", "\\ge "},
                                             {"≠", "\\ne "},
                                             {"≈", "\\approx "},
                                             {"±", "\\pm "},
                                             {"∓", "\\mp "},
                                             {"∪", "\\cup "},
                                             {"∩", "\\cap "},
                                             {"∈", "\\in "},
                                             {"∅", "\\varnothing "},
                                             {"ø", "\\varnothing "},
                                             {"Ø", "\\varnothing "},
                                             {"ℝ", "\\mathbb{R}"},
                                             {"ℤ", "\\mathbb{Z}"},
                                             {"ℚ", "\\mathbb{Q}"},
                                             {"ℕ", "\\mathbb{N}"},
                                             {"ℂ", "\\mathbb{C}"},
                                             {"α", "\\alpha "},
                                             {"β", "\\beta "},
                                             {"γ", "\\gamma "},
                                             {"δ", "\\delta "},
                                             {"θ", "\\theta "},
                                             {"λ", "\\lambda "},
                                             {"μ", "\\mu "},
                                             {"φ", "\\phi "},
                                             {"ω", "\\omega "},
                                             {"½", "\\frac{1}{2}"},
                                             {"⅓", "\\frac{1}{3}"},
                                             {"⅔", "\\frac{2}{3}"},
                                             {"¼", "\\frac{1}{4}"},
                                             {"¾", "\\frac{3}{4}"},
                                             {"⅕", "\\frac{1}{5}"},
                                             {"⅛", "\\frac{1}{8}"},
                                             {"⟨", "\\langle "},
                                             {"⟩", "\\rangle "},
                                             {"、", ","},
                                             {"。", "."},
                                             {"£", "\\$"},
                                             {"€", "\\$"},
                                             {"’", "'"},
                                             {"′", "'"}});

constexpr auto kRaised = std::to_array<Sign>({{"⁰", "0"},
                                              {"¹", "1"},
                                              {"²", "2"},
                                              {"³", "3"},
                                              {"⁴", "4"},
                                              {"⁵", "5"},
                                              {"⁶", "6"},
                                              {"⁷", "7"},
                                              {"⁸", "8"},
                                              {"⁹", "9"},
                                              {"⁻", "-"},
                                              {"⁺", "+"},
                                              {"ⁿ", "n"}});
constexpr auto kLowered = std::to_array<Sign>({{"₀", "0"},
                                               {"₁", "1"},
                                               {"₂", "2"},
                                               {"₃", "3"},
                                               {"₄", "4"},
                                               {"₅", "5"},
                                               {"₆", "6"},
                                               {"₇", "7"},
                                               {"₈", "8"},
                                               {"₉", "9"}});
constexpr std::string_view kRoot = "√";

template <typename List>
const Sign* sign_at(const List& list, std::string_view text) {
  for (const Sign& sign : list)
    if (text.starts_with(sign.first)) return &sign;
  return nullptr;
}

/// The ASCII form of U+FF01 to U+FF5E, which are EF BC 81 to EF BD 9E; 0 for other text.
char narrow(std::string_view text) {
  if (text.size() < 3 || text[0] != '\xEF') return 0;
  const int page = static_cast<unsigned char>(text[1]), last = static_cast<unsigned char>(text[2]);
  if (page == 0xBC && last >= 0x81 && last <= 0xBF) return static_cast<char>(0x21 + last - 0x81);
  if (page == 0xBD && last >= 0x80 && last <= 0x9E) return static_cast<char>(0x60 + last - 0x80);
  return 0;
}

/// Writes the run of small digits that `text` starts with; gives its length.
template <typename List>
size_t write_small(const List& list, const char* before, std::string_view text, std::string& result) {
  size_t length = 0;
  while (const Sign* sign = sign_at(list, text.substr(length))) {
    result += length == 0 ? before : "";
    result += sign->second;
    length += sign->first.size();
  }
  if (length > 0) result += '}';
  return length;
}

size_t write_root(std::string_view text, std::string& result) {
  size_t end = kRoot.size();
  while (end < text.size() && is_digit(text[end])) ++end;
  const std::string_view digits = text.substr(kRoot.size(), end - kRoot.size());
  result += "\\sqrt";
  result += digits.empty() ? " " : "{" + std::string(digits) + "}";
  return end;
}

}  // namespace

std::string without_unicode_signs(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    if (static_cast<signed char>(text[i]) >= 0) {
      result += text[i++];
      continue;
    }
    size_t length = write_small(kRaised, "^{", rest, result);
    if (length == 0) length = write_small(kLowered, "_{", rest, result);
    if (length == 0 && rest.starts_with(kRoot)) length = write_root(rest, result);
    if (length > 0) {
      i += length;
    } else if (const char ascii = narrow(rest)) {
      result += ascii;
      i += 3;
    } else if (const Sign* sign = sign_at(kSigns, rest)) {
      result += sign->second;
      i += sign->first.size();
    } else {
      result += text[i++];
    }
  }
  return result;
}

}  // namespace temper

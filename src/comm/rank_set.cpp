#include "src/comm/rank_set.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "src/core/check.h"
#include "src/core/text/short_number.h"

namespace temper {
namespace {

constexpr size_t kMaxShown = 40;

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view strip(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// A rank, at most 2^31 - 1; larger numbers saturate, so that they are refused as too large and not as no
/// number.
std::optional<int64_t> rank_number(std::string_view text) {
  text = strip(text);
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = std::min<int64_t>(value * 10 + (c - '0'), INT32_MAX);
  }
  return value;
}

/// Adds "5" or "0-7" to `taken`; returns the defect.
std::string add_part(std::string_view part, int world_size, std::vector<bool>& taken) {
  const size_t dash = part.find('-');
  const auto first = rank_number(part.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : rank_number(part.substr(dash + 1));
  const std::string shown(part.substr(0, kMaxShown));
  if (!first || !last) return fmt::format("\"{}\" is no rank and no range of ranks like 0-7", shown);
  if (*first > *last) return fmt::format("the range \"{}\" descends", shown);
  if (*last >= world_size)
    return fmt::format("\"{}\" names rank {}, the world has {}, 0 to {}", shown, *last,
                       count_text(world_size, "rank"), world_size - 1);
  for (int64_t rank = *first; rank <= *last; ++rank) {
    if (taken[static_cast<size_t>(rank)]) return fmt::format("rank {} is named more than once", rank);
    taken[static_cast<size_t>(rank)] = true;
  }
  return "";
}

}  // namespace

RankSet read_rank_set(std::string_view text, int world_size) {
  RankSet set;
  if (strip(text) == "all") {
    set.ranks.resize(static_cast<size_t>(std::max(world_size, 0)));
    std::iota(set.ranks.begin(), set.ranks.end(), 0);
    return set;
  }
  std::vector<bool> taken(static_cast<size_t>(std::max(world_size, 0)));
  for (size_t at = 0; at <= text.size() && set.defect.empty();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    set.defect = add_part(text.substr(at, comma - at), world_size, taken);
    at = comma + 1;
  }
  if (!set.defect.empty()) return set;
  for (size_t rank = 0; rank < taken.size(); ++rank)
    if (taken[rank]) set.ranks.push_back(static_cast<int>(rank));
  return set;
}

std::vector<int> parse_rank_set(const std::string& text, int world_size) {
  RankSet set = read_rank_set(text, world_size);
  if (!set.defect.empty())
    fail(Exit::usage, {.what = "illegal set of ranks",
                       .where = fmt::format("\"{}\"", text.substr(0, kMaxShown)),
                       .why = set.defect,
                       .fix = "write \"all\" or ranks and ascending ranges, for example \"0-7,16-23\""});
  return std::move(set.ranks);
}

std::string rank_set_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (end > i) text += fmt::format("-{}", ranks[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace temper

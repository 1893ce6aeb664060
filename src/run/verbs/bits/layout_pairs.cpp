#include "src/run/verbs/bits/layout_pairs.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "src/core/check.h"
#include "src/core/split.h"

namespace temper {
namespace {

struct AxisKey {
  std::string_view name;
  RoleKey key;
  std::optional<int64_t> RoleSection::*ranks;
};
constexpr AxisKey kAxisKeys[] = {{"tp", RoleKey::tp, &RoleSection::tp},
                                 {"cp", RoleKey::cp, &RoleSection::cp},
                                 {"pp", RoleKey::pp, &RoleSection::pp},
                                 {"vpp", RoleKey::vpp, &RoleSection::vpp},
                                 {"zero", RoleKey::zero, &RoleSection::zero}};

const RoleTraits& role_named(std::string_view name) {
  const auto rows = built_in_role_traits();
  return *std::find_if(rows.begin(), rows.end(), [&](const RoleTraits& row) { return row.name == name; });
}

[[noreturn]] void fail_pair(const std::string& text, const std::string& why) {
  fail(Exit::usage,
       {.what = "this is no pair of layouts",
        .where = "--layouts " + text,
        .why = why,
        .fix = "write ROLLOUT:TRAINER, such as tp2:pp2, 1:tp2cp2 or tp2pp2:1; 1 splits nothing"});
}

/// "tp2pp2" of a role, "1" of none.
RoleSection read_layout(std::string_view text, const RoleTraits& role, const std::string& pair) {
  RoleSection section;
  for (const AxisKey& axis : kAxisKeys)
    if (role.keys.has(axis.key)) section.*axis.ranks = 1;
  if (text == "1") return section;
  if (text.empty()) fail_pair(pair, fmt::format("the layout of the {} is missing", role.name));
  std::string known;
  for (const AxisKey& axis : kAxisKeys)
    if (role.keys.has(axis.key)) known += fmt::format("{}{}", known.empty() ? "" : ", ", axis.name);
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find_first_of("0123456789"));
    const AxisKey* const axis = std::find_if(std::begin(kAxisKeys), std::end(kAxisKeys),
                                             [&](const AxisKey& row) { return row.name == name; });
    if (axis == std::end(kAxisKeys) || !role.keys.has(axis->key))
      fail_pair(pair, fmt::format("the {} has {}, not \"{}\"", role.name, known, name));
    text.remove_prefix(name.size());
    int32_t ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (error != std::errc() || ranks < 1)
      fail_pair(pair, fmt::format("a number from 1 on is wanted after \"{}\"", name));
    section.*(axis->ranks) = ranks;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
  }
  return section;
}

}  // namespace

LayoutPair parse_layout_pair(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) fail_pair(text, "a colon is missing between rollout and trainer");
  const std::string_view all = text;
  return {text, read_layout(all.substr(0, colon), role_named("rollout"), text),
          read_layout(all.substr(colon + 1), role_named("trainer"), text)};
}

std::vector<LayoutPair> parse_layout_pairs(const std::vector<std::string>& words) {
  std::vector<LayoutPair> pairs;
  for (const std::string& word : words)
    for (const std::string& text : split(word, ',')) pairs.push_back(parse_layout_pair(text));
  return pairs;
}

std::vector<LayoutPair> standard_pairs(int ranks, const std::function<bool(const LayoutPair&)>& fits) {
  constexpr std::pair<const char*, const char*> kAxes[] = {
      {"tp", ""}, {"", "tp"}, {"tp", "pp"}, {"pp", "cp"}};
  std::vector<LayoutPair> pairs{parse_layout_pair("1:1")};
  for (const auto& [rollout, trainer] : kAxes) {
    const auto layout = [](const std::string& axis, int along) {
      return axis.empty() ? "1" : axis + std::to_string(along);
    };
    for (int along = ranks; along > 1; --along) {
      if (ranks % along != 0) continue;
      const LayoutPair pair = parse_layout_pair(layout(rollout, along) + ":" + layout(trainer, along));
      if (!fits(pair)) continue;
      pairs.push_back(pair);
      break;
    }
  }
  return pairs;
}

void set_layouts(RolesConfig& roles, const LayoutPair& pair) {
  for (const auto& [name, from] : {std::pair{"rollout", &pair.rollout}, {"trainer", &pair.trainer}})
    for (const AxisKey& axis : kAxisKeys) roles.of(name).*axis.ranks = from->*axis.ranks;
}

}  // namespace temper

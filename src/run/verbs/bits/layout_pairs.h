#pragma once
// Pairs of layouts on the same ranks, as `verify-bits` takes them: "tp2:pp2cp2" is a rollout with tp = 2 and
// a trainer with pp = 2 and cp = 2; "1" splits nothing. What the axes leave of the ranks is data parallel.

#include <functional>
#include <string>
#include <vector>

#include "src/config/roles.h"

namespace temper {

struct LayoutPair {
  std::string text;
  RoleSection rollout, trainer;  // the axes alone, each of them set
};

/// Exit::usage for what is no such pair; whether it fits a model and the ranks is the plan's to say.
LayoutPair parse_layout_pair(const std::string& text);
/// Those of a list in which commas separate pairs, too.
std::vector<LayoutPair> parse_layout_pairs(const std::vector<std::string>& words);

/// For so many ranks: none split, then each axis on one side or on both, along as many ranks as `fits`
/// takes.
std::vector<LayoutPair> standard_pairs(int ranks, const std::function<bool(const LayoutPair&)>& fits);

/// Writes the axes into the sections of both roles.
void set_layouts(RolesConfig& roles, const LayoutPair& pair);

}  // namespace temper

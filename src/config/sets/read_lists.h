#pragma once
// Items of lists that are tables: reward functions, validation sets and programs that play sessions. Each
// reader fills its item, or says why it cannot.

#include <string>

#include "src/config/config.h"
#include "src/config/toml_node.h"

namespace temper {

/// The items of a list, or the one that stands for it.
std::vector<const TomlNode*> items_of(const TomlNode& node);
/// The value of `node` for a message, cut to a line.
std::string shown(const TomlNode& node);

/// Returns what is wrong; empty: nothing.
std::string read_function(const TomlNode& node, RewardFunctionConfig& function);
std::string read_set(const TomlNode& node, ValidationSet& set);
/// The whole list, or the one program that stands for it.
std::string read_harnesses(const TomlNode& node, std::vector<HarnessConfig>& harnesses);

Json function_json(const RewardFunctionConfig& function);
Json set_json(const ValidationSet& set);
Json harness_json(const HarnessConfig& harness);

}  // namespace temper

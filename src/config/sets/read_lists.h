#pragma once
// Items of lists that are tables: reward functions and validation sets. Each reader fills its item, or says
// why it cannot.

#include <string>

#include "src/config/config.h"
#include "src/config/toml_node.h"

namespace temper {

/// The value of `node` for a message, cut to a line.
std::string shown(const TomlNode& node);

/// Returns what is wrong; empty: nothing.
std::string read_function(const TomlNode& node, RewardFunctionConfig& function);
std::string read_set(const TomlNode& node, ValidationSet& set);

Json function_json(const RewardFunctionConfig& function);
Json set_json(const ValidationSet& set);

}  // namespace temper

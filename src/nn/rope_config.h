#pragma once
// Rotary position settings of a model, as in its config.json (read and checked by io/hf/hf_rope.h). A value that
// the file does not have, and that changes the formula by its absence, is optional. Formulas:
// nn/rope_table.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace temper {

struct RopeConfig {
  std::string type = "default";  // default, linear, llama3, yarn, dynamic, longrope
  double theta = 1e4;
  std::optional<double> factor = {};
  std::optional<int64_t> max_position_embeddings = {};  // of the model
  std::optional<int64_t> original_max_position_embeddings =
      {};  // llama3, yarn, longrope; absent: the model's
  std::optional<double> low_freq_factor = {}, high_freq_factor = {};  // llama3
  std::optional<double> beta_fast = {}, beta_slow = {};               // yarn; absent: 32 and 1
  std::optional<double> mscale = {}, mscale_all_dim = {};             // yarn
  std::optional<double> attention_factor = {};                        // yarn, longrope
  bool truncate = true;                                               // yarn: whole-numbered ends of the ramp
  std::vector<double> short_factor = {}, long_factor = {};            // longrope, dh/2 numbers each
};

}  // namespace temper

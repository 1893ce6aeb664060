#pragma once
// Configs written as text in tests: a file of their own for as long as they are read.

#include <fstream>

#include "src/config/load.h"
#include "tests/support/temp_dir.h"

namespace temper {

inline const char* const kMinimalConfig = R"(
[run]
name = "first"
steps = 10
[model]
path = "models/tiny"
[rollout]
prompts_per_step = 4
samples_per_prompt = 8
max_new_tokens = 16
[optimizer]
lr = 1e-6
[data]
train = "data/a.jsonl"
[reward]
functions = ["exact"]
)";

inline const char* const kMinimalSft = R"(
run = {name = "s", steps = 2}
model.path = "m"
algorithm.name = "sft"
train.samples_per_update = 8
optimizer.lr = 1e-5
data.train = "a"
)";

inline ConfigReading read_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const TempDir folder;
  std::ofstream(folder / "x.toml", std::ios::binary) << text;
  return read_config(folder / "x.toml", overrides);
}

inline LoadedConfig load_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const TempDir folder;
  std::ofstream(folder / "x.toml", std::ios::binary) << text;
  return load_config(folder / "x.toml", overrides);
}

}  // namespace temper

#pragma once
// What tests of whole runs share: a config with what most of them want, sums as data, a model of random
// weights, and the files that a run leaves.

#include <gtest/gtest.h>

#include <map>

#include "src/core/digest/hash.h"
#include "tests/support/program.h"

namespace temper {

/// A config: `lines` ("\nrun.steps = 3\n", a key a line), and for keys that they leave out what most tests
/// use.
inline std::string run_config(const std::string& lines) {
  static constexpr std::pair<const char*, const char*> kDefaults[] = {
      {"run.threads", "1"},     {"model.path", "\"model\""},
      {"optimizer.lr", "1e-3"}, {"data.train", "\"data.jsonl\""},
      {"data.chat", "false"},   {"reward.functions", "[\"arithmetic\"]"},
  };
  std::string text = lines;
  for (const auto& [key, value] : kDefaults)
    if (lines.find(fmt::format("\n{} = ", key)) == std::string::npos)
      text += fmt::format("{} = {}\n", key, value);
  return text;
}

/// Questions whose answers are numbers, no two alike.
inline std::string sums(int count) {
  std::string data;
  for (int i = 0; i < count; ++i)
    data += fmt::format("{{\"prompt\":\"What is {0} plus {1}?\",\"answer\":\"{2}\",\"response\":\"{2}\"}}\n",
                        i, 3 * i, 4 * i);
  return data;
}

/// It has many positions: a step of long answers takes as long as a test needs.
inline constexpr const char* kLongContext = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 16384,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

class RunFixture : public ::testing::Test {
 protected:
  /// run.toml, data.jsonl and the model folder model/, in the program's folder.
  void prepare(const std::string& config_lines, const std::string& data) const {
    program_.write("run.toml", run_config(config_lines));
    program_.write("data.jsonl", data);
    ASSERT_EQ(program_.init_model("model"), 0) << program_.output();
  }

  /// The model folder long/.
  void prepare_long_model() const {
    ASSERT_EQ(program_.init_model("long", kLongContext), 0) << program_.output();
  }

  std::string output() const { return program_.output(); }
  int64_t count(const std::string& text) const { return times_in(output(), text); }
  bool says(const std::string& text) const { return output().find(text) != std::string::npos; }
  bool exists(const std::string& name) const { return path_exists(program_.path(name)); }
  /// True when a rank of the run has said so in its log.
  bool logged(const std::string& run, const std::string& text) const {
    const std::string logs = "runs/" + run + "/logs";
    for (const std::string& file : list_directory(program_.path(logs)))
      if (program_.read(join_path(logs, file)).find(text) != std::string::npos) return true;
    return false;
  }
  struct RanksRun {
    int ranks;
    std::string arguments;  // "train ..."
  };
  /// Those on as many ranks by one start (tests/support/run_list.h). The first exit code that is not 0.
  int run_each(const std::vector<RanksRun>& runs) const {
    std::map<int, std::vector<std::string>> by_ranks;
    for (const RanksRun& run : runs) by_ranks[run.ranks].push_back(run.arguments);
    for (const auto& [ranks, list] : by_ranks)
      if (const int code = program_.run_ranks_each(ranks, list); code != 0) return code;
    return 0;
  }
  /// Changes one bit in the middle of a file.
  void damage(const std::string& name) const {
    std::string bytes = program_.read(name);
    bytes[bytes.size() / 2] ^= 1;
    program_.write(name, bytes);
  }

  /// Files of a run by step.
  static std::string checkpoint(const std::string& run, int64_t step) {
    return fmt::format("runs/{}/checkpoints/{}", run, step_name(step));
  }
  static std::string rollout_file(const std::string& run, int64_t step) {
    return fmt::format("runs/{}/rollouts/{}.jsonl", run, step_name(step));
  }
  std::string rollouts(const std::string& run, int64_t step) const {
    return program_.read(rollout_file(run, step));
  }
  std::string exported_weights(const std::string& run, int64_t step) const {
    return program_.read(fmt::format("runs/{}/export/{}/model.safetensors", run, step_name(step)));
  }
  /// Steps that metrics.jsonl has a line of.
  int64_t steps_done(const std::string& run) const {
    const std::string file = "runs/" + run + "/metrics.jsonl";
    if (!exists(file)) return 0;
    const std::string text = program_.read(file);
    return std::count(text.begin(), text.end(), '\n');
  }
  std::string metrics(const std::string& run) const { return program_.fixed_metrics(run); }

  /// A copy of the whole run of `steps` steps as a crash after `step` leaves it.
  void copy_until(const std::string& run, const std::string& name, int64_t step, int64_t steps) const {
    std::filesystem::copy(program_.path("runs/" + run), program_.path("runs/" + name),
                          std::filesystem::copy_options::recursive);
    for (int64_t later = step + 1; later <= steps; ++later)
      std::filesystem::remove_all(program_.path(checkpoint(name, later)));
  }

  /// As a checkpoint was before runs kept what their inputs held.
  void forget_inputs(const std::string& run, int64_t step) const {
    const std::string name = checkpoint(run, step) + "/manifest.json";
    Json manifest = parse_json(program_.read(name), name);
    EXPECT_EQ(manifest["meta"].erase("inputs"), 1u);
    manifest.erase("digest");
    const std::string body = manifest.dump();
    manifest["digest"] = digest_hex(body.data(), std::ssize(body));
    program_.write(name, manifest.dump());
  }

  const Program program_;
};

}  // namespace temper

#pragma once
// Whole small runs in this process with the program's roles and one more (tests/run/roles/toy_role.h): what it says
// reaches the trainer and the rollout files, and a run that is stopped after every step goes on with the same
// bits.

#include <filesystem>

#include "src/config/load.h"
#include "src/core/file.h"
#include "src/io/hf/hf_export.h"
#include "src/models/parameter_specs.h"
#include "src/run/plan/model_facts.h"
#include "src/run/session/session.h"
#include "tests/run/roles/toy_role.h"
#include "tests/support/expect_error.h"
#include "tests/support/program.h"
#include "tests/support/ranks.h"

namespace temper {

inline constexpr int64_t kToySteps = 4;
inline constexpr const char* kToyConfig = R"([run]
steps = 4
threads = 1
[algorithm]
kl_coef = 0.1
entropy_coef = 0.01
[rollout]
prompts_per_step = 3
samples_per_prompt = 2
max_new_tokens = 8
tokens_per_step = 5
[train]
samples_per_update = 6
last_partial = "keep"
[optimizer]
lr = 1e-3
[data]
chat = false
[reward]
functions = ["arithmetic"]
[log]
level = "error"
)";

class ToyRun : public OnRanks {
 protected:
  ToyRun() {
    if (comm_->rank() == 0) {
      write_file_atomic(folder_ + "/run.toml", kToyConfig);
      write_file_atomic(folder_ + "/model.json", kTinyQwen3);
      std::string data;
      for (int i = 0; i < 7; ++i)
        data += fmt::format("{{\"prompt\":\"What is {} plus {}?\",\"answer\":\"{}\"}}\n", i, 2 * i, 3 * i);
      write_file_atomic(folder_ + "/data.jsonl", data);
      init_model_folder(folder_ + "/model.json", folder_ + "/model", 1, "fp32",
                        "tests/golden/tokenizer/minimind", parameter_specs, 1);
    }
    comm_->barrier("test: config, data and model are there");
    rows_.assign(built_in_roles().begin(), built_in_roles().end());
    rows_.push_back({"toy", Duty::annotates, toy_ranks, make_toy_role});
  }

  LoadedConfig load(const std::string& name, std::vector<std::string> overrides) const {
    for (const char* key : {"model.path=", "data.train=", "run.dir="})
      overrides.push_back(key + folder_ +
                          (key[0] == 'm'   ? "/model"
                           : key[0] == 'd' ? "/data.jsonl"
                                           : "/runs"));
    overrides.push_back("run.name=" + name);
    return load_config(folder_ + "/run.toml", overrides, traits_);
  }

  /// `stops`: the time is over after each step. The exit code.
  int train(const std::string& name, bool stops, const std::vector<std::string>& overrides) const {
    LoadedConfig loaded = load(name, overrides);
    if (stops) loaded.config.run.time_limit_seconds = 0;
    const RunPlan plan = make_plan(loaded, comm_->size(), read_run_models(loaded.config));
    return run_session({loaded, plan}, *test_world, rows_);
  }

  std::vector<Json> lines(const std::string& file) const {
    std::vector<Json> list;
    const std::string all = read_file(folder_ + "/runs/" + file, int64_t{1} << 30);
    for (size_t at = 0, end; at < all.size(); at = end + 1) {
      end = std::min(all.find('\n', at), all.size());
      list.push_back(parse_json(all.substr(at, end - at), file));
    }
    return list;
  }
  std::vector<Json> rollouts(const std::string& name, int64_t step) const {
    return lines(fmt::format("{}/rollouts/step-{:06d}.jsonl", name, step));
  }

  /// What is expected follows from the definition of the role; every rank of the role sees a share of the
  /// groups and all steps.
  void expect_annotated(const std::string& name) const {
    double mood = 0;
    const std::vector<Json> metrics = lines(name + "/metrics.jsonl");
    ASSERT_EQ(metrics.size(), static_cast<size_t>(kToySteps));
    for (int64_t step = 1; step <= kToySteps; ++step) {
      const std::vector<Json> samples = rollouts(name, step);
      for (const Json& sample : samples)
        EXPECT_EQ(sample.at("reward_parts").at("toy").get<double>(),
                  mood + 0.001 * static_cast<double>(sample.at("response_tokens").size()))
            << name << ", step " << step;
      EXPECT_EQ(metrics[static_cast<size_t>(step - 1)].at("toy/annotated"), samples.size());
      mood = (mood + static_cast<double>(step)) / 3;
    }
  }

  std::string fixed_metrics(const std::string& name) const {
    std::string kept;
    for (const Json& line : lines(name + "/metrics.jsonl"))
      for (const auto& [key, value] : line.items())
        if (!key.starts_with("timing_s/") && !key.starts_with("perf/"))
          kept += key + "=" + value.dump() + "\n";
    return kept;
  }

  void expect_survives_stops(const std::vector<std::string>& overrides) const {
    const int whole = train("whole", false, overrides);
    EXPECT_EQ(whole, static_cast<int>(Exit::ok));
    for (int64_t step = 1; step <= kToySteps; ++step)
      EXPECT_EQ(train("stopped", true, overrides),
                static_cast<int>(step < kToySteps ? Exit::retry : Exit::ok))
          << step;
    if (comm_->rank() != 0) return;
    expect_annotated("whole");
    expect_annotated("stopped");
    for (int64_t step = 1; step <= kToySteps; ++step)
      EXPECT_TRUE(rollouts("whole", step) == rollouts("stopped", step)) << step;
    EXPECT_EQ(fixed_metrics("whole"), fixed_metrics("stopped"));
    const CheckpointReader a(last_checkpoint("whole")), b(last_checkpoint("stopped"));
    EXPECT_EQ(a.count("roles/toy/steps"), kToySteps);
    EXPECT_EQ(mood_of(a), mood_of(b));
  }

  std::string last_checkpoint(const std::string& name) const {
    return fmt::format("{}/runs/{}/checkpoints/step-{:06d}", folder_, name, kToySteps);
  }
  static std::string mood_of(const CheckpointReader& checkpoint) {
    return checkpoint.parsed("roles/toy/mood", [](std::string_view bytes) { return std::string(bytes); });
  }

  std::vector<RoleRow> rows_;
  std::span<const RoleTraits> traits_ = built_in_role_traits();
};

}  // namespace temper

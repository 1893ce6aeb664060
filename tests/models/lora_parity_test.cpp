// Every folder of tests/golden/lora (tools/golden/golden_lora.py), adapters as PEFT writes them, against PEFT
// in fp32: log-probs of a packed batch, the gradient of every adapter, what an export writes again, and the
// merged weights. What a folder may not be.

#include <gtest/gtest.h>

#include <filesystem>

#include "src/core/json.h"
#include "src/io/elements.h"
#include "src/io/hf/merged_weights.h"
#include "src/io/hf/peft_folder.h"
#include "src/models/parameter_specs.h"
#include "src/nn/init.h"
#include "src/ops/backend.h"
#include "tests/support/expect_error.h"
#include "tests/support/lora_case.h"
#include "tests/support/model_pass.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

class LoraParity : public ::testing::TestWithParam<const char*> {
 protected:
  Adapted adapted_{GetParam()};
  Backend backend_{Device::cpu};
};

TEST_P(LoraParity, LogprobsAndGradients) {
  const GoldenFile& golden = adapted_.golden;
  const std::vector<Trajectory> sequences = sequences_of(golden);
  const std::vector<double> logprobs =
      target_gradients(backend_.ctx(), *adapted_.model, sequences, golden.numbers("weights"));
  const double error = worst_difference(logprobs, golden.numbers("logprobs"));
  EXPECT_LE(error, 2e-5);
  const double worst = worst_gradient_error(backend_.ctx(), adapted_);
  EXPECT_LE(worst, 1e-4);
  std::printf("%-20s log-prob error %.1e, gradient error %.1e\n", GetParam(), error, worst);
}

/// What the base says alone, and when it is asked for in between.
TEST_P(LoraParity, BaseIsThereBesideThem) {
  const std::vector<Trajectory> sequences = sequences_of(adapted_.golden);
  const auto with = target_logprobs(backend_.ctx(), *adapted_.model, sequences);
  adapted_.model->use_adapters(false);
  const auto without = target_logprobs(backend_.ctx(), *adapted_.model, sequences);
  const auto plain = load_model(adapted_.base_folder, DType::f32, kLoraContext);
  EXPECT_EQ(without, target_logprobs(backend_.ctx(), *plain, sequences));
  EXPECT_LE(worst_difference(without, adapted_.golden.numbers("base")), 2e-5);
  adapted_.model->use_adapters(true);
  EXPECT_EQ(with, target_logprobs(backend_.ctx(), *adapted_.model, sequences));
}

/// Names, shapes and bytes of all tensors, and the keys that matter.
TEST_P(LoraParity, ExportIsWhatPeftWrote) {
  const TempDir temp;
  const std::string out = temp / "adapters";
  export_adapters(parameter_specs(adapted_.config), store_reader(adapted_.model->parameters()), out,
                  {adapted_.config.adapters, adapted_.base_folder, DType::f32});
  const GoldenFile theirs(adapted_.folder + "/" + kAdapterModel), ours(out + "/" + kAdapterModel);
  const SafetensorsFile file(out + "/" + kAdapterModel, "");
  EXPECT_EQ(theirs.size(), ours.size());
  for (const auto& [name, info] : file.tensors()) EXPECT_EQ(ours.numbers(name), theirs.numbers(name)) << name;
  const Json mine = read_json_file(out + "/" + kAdapterConfig),
             peft = read_json_file(adapted_.folder + "/" + kAdapterConfig);
  for (const char* key : {"peft_type", "task_type", "r", "lora_alpha", "use_rslora", "target_modules", "bias",
                          "fan_in_fan_out", "modules_to_save", "use_dora", "inference_mode"})
    EXPECT_EQ(mine.at(key), peft.at(key)) << key;
  EXPECT_EQ(read_adapter_config(out, adapter_modules(adapted_.config)), adapted_.config.adapters);
}

TEST_P(LoraParity, MergedIsWhatPeftMerges) {
  ModelFolder folder = ModelFolder::open(adapted_.base_folder);
  folder.match_names(adapted_.base_config);
  const std::vector<ParamSpec> specs = parameter_specs(adapted_.config);
  const ElementReader adapters = store_reader(adapted_.model->parameters());
  const ElementReader merged = merged_reader(folder, specs, adapted_.config.adapters.scale(), adapters);
  int compared = 0;
  for (const ParamSpec& spec : parameter_specs(adapted_.base_config)) {
    std::vector<double> values(static_cast<size_t>(spec.size()));
    for (int64_t at = 0; at < spec.size(); at += 100) {
      const int64_t n = std::min<int64_t>(100, spec.size() - at);
      merged(spec, at, n, make_tensor(values.data() + at, DType::f64, {n}));
    }
    int64_t first = 0;
    for (const HfPart& part : spec.parts) {
      if (adapted_.golden.has("merged/" + part.name)) {
        EXPECT_LE(relative_error(values, first, adapted_.golden.numbers("merged/" + part.name)), 1e-6);
        ++compared;
      }
      first += part.rows * (spec.size() / spec.shape[0]);
    }
  }
  EXPECT_EQ(compared, 1);
}

INSTANTIATE_TEST_SUITE_P(Cases, LoraParity, ::testing::ValuesIn(kLoraCases), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// Fresh ones add nothing: the bits of the base. The numbers of a model's own weights are those without them.
TEST(Lora, FreshAdaptersAddNothing) {
  Adapted adapted("qwen3-all");
  Backend backend(Device::cpu);
  adapter_init(adapted.model->parameters(), adapted.config, 7);
  const std::vector<Trajectory> sequences = sequences_of(adapted.golden);
  const auto plain = load_model(adapted.base_folder, DType::f32, kLoraContext);
  EXPECT_EQ(target_logprobs(backend.ctx(), *adapted.model, sequences),
            target_logprobs(backend.ctx(), *plain, sequences));
  for (const Parameter& p : adapted.model->parameters().list()) {
    if (p.spec.init != Init::uniform) continue;
    const double bound = 1 / std::sqrt(static_cast<double>(p.spec.shape[1]));
    double largest = 0;
    for (int64_t i = 0; i < p.value.size(); ++i)
      largest = std::max(largest, static_cast<double>(std::abs(p.value.as<float>()[i])));
    EXPECT_LE(largest, bound);
    EXPECT_GE(largest, 0.7 * bound) << p.spec.name;
  }
}

/// A copy of a case with other keys.
class OtherFolder {
 public:
  explicit OtherFolder(const Json& keys) : path_(temp_ / "adapters") {
    std::filesystem::copy(lora_folder("qwen3-all"), path_);
    Json config = read_json_file(path_ + "/" + kAdapterConfig);
    config.update(keys);
    std::filesystem::remove(path_ + "/" + kAdapterConfig);
    OutputFile file(path_ + "/" + kAdapterConfig, OutputFile::Mode::create_new);
    file.write(config.dump());
    file.close();
  }
  const std::string& path() const { return path_; }

 private:
  TempDir temp_;
  std::string path_;
};

TEST(Lora, OtherKindsAreRefused) {
  const std::set<std::string> modules = adapter_modules(Adapted("qwen3-all").config);
  const std::vector<std::pair<Json, std::string>> cases{
      {{{"use_dora", true}}, "DoRA"},
      {{{"modules_to_save", {"lm_head"}}}, "saved whole"},
      {{{"bias", "all"}}, "trained bias"},
      {{{"rank_pattern", {{"q_proj", 8}}}}, "by module"},
      {{{"target_parameters", {"experts.down_proj"}}}, "experts"},
      {{{"layers_to_transform", {0}}}, "layers_to_transform"},
      {{{"peft_type", "IA3"}}, "LORA"},
      {{{"init_lora_weights", "pissa"}}, "changes the weights"},
      {{{"r", 0}}, "whole number"},
      {{{"r", 2.5}}, "whole number"},
      {{{"lora_alpha", -1}}, "above 0"},
      {{{"lora_alpha", "x"}}, "no number"},
      {{{"target_modules", {"q_poj"}}}, "q_proj"},
      {{{"target_modules", "q.*"}}, "no list"},
      {{{"a_key_of_tomorrow", 3}}, "a_key_of_tomorrow"},
  };
  for (const auto& [keys, said] : cases) {
    const OtherFolder folder(keys);
    expect_error(Exit::data, {said}, keys.dump(), [&] { read_adapter_config(folder.path(), modules); });
  }
  expect_error(Exit::data, {"adapter_config.json"}, "no folder of adapters",
               [&] { read_adapter_config("tests/golden/models", modules); });
}

TEST(Lora, OtherShapesAreRefused) {
  const auto import = [](const Json& keys) {
    const OtherFolder folder(keys);
    ModelConfig config = Adapted("qwen3-all").base_config;
    config.adapters = read_adapter_config(folder.path(), adapter_modules(config));
    Model model(config, ModelOptions{DType::f32, kLoraContext});
    import_adapters(folder.path(), model.parameters());
  };
  expect_error(Exit::data, {"rank 8"}, "another rank", [&] { import({{ "r", 8 }}); });
  expect_error(Exit::data, {"belongs to no adapter"}, "fewer targets", [&] {
    import({{ "target_modules", { "q_proj" } }});
  });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

#pragma once
// The cases of tests/golden/lora (tools/golden/golden_lora.py): a model of tests/golden with adapters as PEFT
// writes them, and what PEFT computes with both.

#include "src/io/hf/peft_folder.h"
#include "src/models/parameter_specs.h"
#include "tests/support/golden_case.h"
#include "tests/support/model_pass.h"

namespace temper {

inline constexpr const char* kLoraCases[] = {"qwen3-all", "qwen2-qv-rslora", "llama-mlp",
                                             "qwen3-moe-attention"};
inline constexpr int64_t kLoraContext = 128;

inline std::string lora_folder(const std::string& name) { return "tests/golden/lora/" + name; }

/// A base with the adapters of a case.
struct Adapted {
  explicit Adapted(const std::string& name, DType dtype = DType::f32, Device device = Device::cpu)
      : folder(lora_folder(name)),
        base_folder("tests/golden/" + read_file(folder + "/base.txt", 1 << 10)),
        golden(folder + "/golden.safetensors") {
    base_folder.pop_back();  // the line's end
    ModelFolder of_base = ModelFolder::open(base_folder);
    config = parse_model_config(of_base.config(), nullptr, of_base.config_path());
    base_config = config;
    config.adapters = read_adapter_config(folder, adapter_modules(config));
    model =
        std::make_unique<Model>(config, ModelOptions{dtype, kLoraContext, /*with_gradients=*/true, device});
    import_weights(of_base, config, model->parameters());
    import_adapters(folder, model->parameters());
  }

  std::string folder, base_folder;
  GoldenFile golden;
  ModelConfig config, base_config;
  std::unique_ptr<Model> model;
};

inline std::vector<Trajectory> sequences_of(const GoldenFile& golden) {
  const std::vector<int32_t> tokens = golden.integers("tokens"), ends = golden.integers("cu_seqlens");
  std::vector<Trajectory> sequences;
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    Trajectory t;
    t.prompt_tokens = {tokens[static_cast<size_t>(ends[s])]};
    t.response.tokens.assign(tokens.begin() + ends[s] + 1, tokens.begin() + ends[s + 1]);
    sequences.push_back(std::move(t));
  }
  return sequences;
}

inline double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : 1e30;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

/// The worst error of the gradients of adapters; nothing else has one.
inline double worst_gradient_error(const Ctx& c, const Adapted& adapted) {
  double worst = 0;
  for (const Parameter& p : adapted.model->parameters().list()) {
    EXPECT_EQ(p.has_grad(), p.spec.whose == Whose::adapter) << p.spec.name;
    if (!p.has_grad()) continue;
    const std::vector<double> gradient = to_host<double>(c, p.grad);
    int64_t first = 0;
    for (const HfPart& part : p.spec.parts) {
      worst = std::max(worst, relative_error(gradient, first, adapted.golden.numbers("grad/" + part.name)));
      first += part.rows * p.spec.shape[1];
    }
  }
  return worst;
}

}  // namespace temper

#include "src/run/plan/model_facts.h"

#include "src/core/check.h"
#include "src/io/hf_config.h"
#include "src/io/model_folder.h"
#include "src/models/model.h"
#include "src/models/parameter_specs.h"

namespace temper {

ModelFacts model_facts(const ModelConfig& c) {
  ModelFacts f{.num_parameters = 0,
               .context_tokens = c.max_position_embeddings,
               .vocab_size = c.vocab_size,
               .num_layers = c.num_layers,
               .hidden_size = c.hidden_size,
               .intermediate_size = c.intermediate_size,
               .q_width = c.num_heads * c.head_dim,
               .kv_width = c.num_kv_heads * c.head_dim,
               .num_heads = c.num_heads,
               .qk_norm = c.qk_norm};
  for (const ParamSpec& spec : parameter_specs(c)) f.num_parameters += spec.size();
  return f;
}

ModelFacts read_model_facts(const std::string& model_path) {
  const std::string path = find_in_folder(model_path, "config.json");
  if (path.empty())
    fail(Exit::usage, {.what = "no model",
                       .where = model_path,
                       .why = "it has no config.json",
                       .fix = "set model.path to a Hugging Face folder"});
  const ModelConfig config = parse_model_config(read_json_file(path, kConfigLimits), nullptr, path);
  check_supported(config, path);
  return model_facts(config);
}

}  // namespace temper

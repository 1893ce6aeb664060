// config.json, and generation_config.json behind a line "=====". What is taken is exported, and read again as
// the same model.

#include "src/io/hf/hf_config.h"
#include "src/io/hf/model_folder.h"
#include "src/nn/rope_table.h"
#include "tests/fuzz/fuzz.h"

namespace temper {

void fuzz(std::string_view input) {
  const auto parts = parts_of(input, 2);
  takes([&] {
    const Json json = parse_json(parts[0], "config.json", kConfigLimits);
    const Json generation =
        parts[1].empty() ? Json() : parse_json(parts[1], "generation_config.json", kConfigLimits);
    const Json* second = parts[1].empty() ? nullptr : &generation;
    std::vector<std::string> warnings;
    const ModelConfig model = parse_model_config(json, second, "config.json", &warnings);
    const Json exported = export_config(json, model, DType::bf16, true);
    const ModelConfig again =
        parse_model_config(parse_json(exported.dump(), "exported", kConfigLimits), second, "exported");
    require(again.hidden_size == model.hidden_size && again.head_dim == model.head_dim &&
                again.rope.type == model.rope.type && again.rope.theta == model.rope.theta &&
                again.eos_token_ids == model.eos_token_ids,
            "an exported config.json of another model: " + exported.dump());
  });
}

}  // namespace temper

#include "src/io/hf/hybrid_config.h"

#include "src/core/check.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

constexpr int64_t kMaxHeads = 1 << 14, kMaxHeadDim = 1 << 12, kMaxWidth = 1 << 24, kMaxTokenId = 1 << 24;
constexpr const char *kLinear = "linear_attention", *kFull = "full_attention";

int64_t or_default(const ConfigReader& r, const char* key, int64_t high, int64_t absent) {
  if (const auto value = r.integer(key, 1, high)) return *value;
  r.warn(fmt::format("\"{}\" is absent, {} is used", key, absent));
  return absent;
}

/// The list of types wins over the interval.
std::set<int64_t> linear_layers(const ConfigReader& r, int64_t num_layers) {
  const Json* types = r.find("layer_types");
  const int64_t interval = r.integer("full_attention_interval", 1, num_layers).value_or(4);
  if (types && (!types->is_array() || std::ssize(*types) != num_layers))
    r.refuse("layer_types", fmt::format("it must be a list of num_hidden_layers = {} strings", num_layers));
  std::set<int64_t> layers;
  for (int64_t i = 0; i < num_layers; ++i) {
    const Json type =
        types ? (*types)[static_cast<size_t>(i)] : Json((i + 1) % interval == 0 ? kFull : kLinear);
    if (type != kFull && type != kLinear)
      r.refuse("layer_types",
               type.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 100) + " is not supported",
               fmt::format("only \"{}\" and \"{}\" are", kLinear, kFull));
    if (type == kLinear) layers.insert(i);
  }
  if (std::ssize(layers) == num_layers)
    r.refuse(types ? "layer_types" : "full_attention_interval",
             fmt::format("none of {} layers has attention", num_layers),
             fmt::format("one layer at least is \"{}\"", kFull));
  return layers;
}

void refuse_other_models(const ConfigReader& r) {
  if (!r.flag("attn_output_gate").value_or(true))
    r.refuse("attn_output_gate", "attention without an output gate is not supported", "only true is");
  if (const auto gate = r.text("output_gate_type"); gate && *gate != "swish" && *gate != "silu")
    r.refuse("output_gate_type", quote_name(*gate) + " is not supported", "only \"swish\" and \"silu\" are");
  if (const auto dtype = r.text("mamba_ssm_dtype"); dtype && *dtype != "float32")
    r.refuse("mamba_ssm_dtype", quote_name(*dtype) + " is not supported", "only \"float32\" is");
}

DeltaConfig read_delta(const ConfigReader& r, int64_t num_layers) {
  DeltaConfig d{.layers = linear_layers(r, num_layers)};
  d.key_heads = or_default(r, "linear_num_key_heads", kMaxHeads, 16);
  d.value_heads = or_default(r, "linear_num_value_heads", kMaxHeads, 32);
  d.key_dim = or_default(r, "linear_key_head_dim", kMaxHeadDim, 128);
  d.value_dim = or_default(r, "linear_value_head_dim", kMaxHeadDim, 128);
  d.taps = or_default(r, "linear_conv_kernel_dim", DeltaConfig::kMostTaps, 4);
  if (d.value_heads % d.key_heads != 0)
    r.refuse("linear_num_value_heads",
             fmt::format("{} is no multiple of linear_num_key_heads {}", d.value_heads, d.key_heads));
  if (2 * d.key_heads * d.key_dim + 2 * d.value_heads * d.value_dim > kMaxWidth)
    r.refuse("linear_num_value_heads",
             fmt::format("{} heads of keys x {} and {} of values x {} are more than {} together", d.key_heads,
                         d.key_dim, d.value_heads, d.value_dim, kMaxWidth));
  return d.layers.empty() ? DeltaConfig{} : d;
}

int64_t rotated_dim(const ConfigReader& r, std::optional<double> fraction, int64_t head_dim) {
  constexpr double kDefault = 0.25;
  const double factor = fraction ? *fraction : r.number("partial_rotary_factor", 0, 1).value_or(kDefault);
  const auto rotated = static_cast<int64_t>(static_cast<double>(head_dim) * factor);
  if (rotated < 2 || rotated % 2 != 0)
    r.refuse("partial_rotary_factor", fmt::format("{} of head_dim {} are {} elements, which are not pairs",
                                                  factor, head_dim, rotated));
  return rotated;
}

}  // namespace

const Json& text_config(const ConfigReader& top, const Json& config, const Family& family) {
  if (!family.in_vision_folder) return config;
  const Json* text = top.find("text_config");
  if (!text)
    top.refuse("text_config",
               fmt::format("a model of type \"{}\" has the keys of its text model there", family.model_type));
  const ConfigReader r(*text, top.source(), "text_config.");
  const std::string wanted = std::string(family.model_type) + "_text";
  if (const auto type = r.text("model_type"); type && *type != wanted)
    r.refuse("model_type", quote_name(*type) + " is not supported", fmt::format("only \"{}\" is", wanted));
  return *text;
}

void read_hybrid(const ConfigReader& top, const ConfigReader& r, const Family& family,
                 std::optional<double> rope_fraction, ModelConfig& c) {
  c.is_hybrid = true;
  refuse_other_models(r);
  c.delta = read_delta(r, c.num_layers);
  c.rotated_dim = rotated_dim(r, rope_fraction, c.head_dim);
  // In a folder with a vision tower the key of the whole model counts.
  c.tie_word_embeddings = top.flag("tie_word_embeddings").value_or(false);
  c.tensor_prefix = family.in_vision_folder ? "model.language_model." : "model.";
  c.kept_tensors = {"model.visual.", "mtp."};
  for (const auto& [key, absent] : {std::pair{"image_token_id", 248056}, {"video_token_id", 248057}}) {
    const auto id = top.integer(key, 0, kMaxTokenId);
    if (id || family.in_vision_folder) c.media_token_ids.push_back(id.value_or(absent));
  }
}

}  // namespace temper

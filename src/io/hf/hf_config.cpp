#include "src/io/hf/hf_config.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/io/elements.h"
#include "src/io/hf/config_reader.h"
#include "src/io/hf/hf_rope.h"
#include "src/io/hf/hybrid_config.h"
#include "src/io/json_members.h"
#include "src/nn/families.h"

namespace temper {
namespace {

constexpr int64_t kMaxVocab = 1 << 24, kMaxWidth = 1 << 20, kMaxFfn = 1 << 24, kMaxLayers = 1 << 14;
constexpr int64_t kMaxHeads = 1 << 14, kMaxHeadDim = 1 << 12, kMaxPositions = 1 << 27;
constexpr int64_t kMaxParameters = int64_t{1} << 44, kMaxExperts = 1024;

std::string supported() {
  std::string names;
  for (const Family& family : families())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.architecture);
  return "supported: " + names;
}

const Family& detect_family(const ConfigReader& r) {
  const std::optional<std::string> type = r.text("model_type");
  std::string architecture;
  if (const Json* list = r.find("architectures")) {
    if (!list->is_array() || list->empty() || !list->front().is_string())
      r.refuse("architectures", "it must be a list of class names", supported());
    architecture = list->front().get<std::string>();
  }
  if (!type && architecture.empty())
    r.refuse("architectures", "neither it nor \"model_type\" is there", supported());
  for (const Family& family : families()) {
    if (!architecture.empty() && architecture != family.architecture) continue;
    if (!type) return family;
    if (*type == family.model_type) return family;
    if (!architecture.empty())
      r.refuse("model_type", quote_name(*type) + " does not belong to architecture " + architecture,
               fmt::format("{} has model_type \"{}\"", architecture, family.model_type));
  }
  if (!architecture.empty())
    r.refuse("architectures", quote_name(architecture) + " is not supported", supported());
  r.refuse("model_type", quote_name(*type) + " is not supported", supported());
}

void refuse_unsupported(const ConfigReader& r, const Family& family) {
  if (r.find("quantization_config"))
    r.refuse("quantization_config", "quantised weights are not supported",
             "use the bf16 or fp32 release of the model");
  if (const auto act = r.text("hidden_act"); act && *act != "silu")
    r.refuse("hidden_act", quote_name(*act) + " is not supported", "only \"silu\" is");
  if (const auto factor = r.number("partial_rotary_factor", -1e9, 1e9);
      factor && *factor != 1.0 && !family.is_hybrid)
    r.refuse("partial_rotary_factor", fmt::format("{} is not supported", *factor), "only 1 is");
  if (r.find("auto_map")) r.warn("\"auto_map\" is ignored, no code from a model folder is run");
}

int64_t size_of(const ConfigReader& r, const Family& family, const char* key, int64_t high, int64_t absent) {
  if (const auto value = r.integer(key, 1, high)) return *value;
  r.warn(fmt::format("\"{}\" is absent, {} is used (the default of {})", key, absent, family.model_type));
  return absent;
}

/// By any of its names; null and absent alike.
int64_t num_experts(const ConfigReader& r, const Family& family) {
  const auto one = r.integer("num_experts", 0, kMaxExperts),
             other = r.integer("num_local_experts", 0, kMaxExperts);
  if (one && other && *one != *other)
    r.refuse("num_experts", fmt::format("{}, and num_local_experts is {}", *one, *other), "keep one of them");
  if (one || other) return one ? *one : *other;
  r.warn(fmt::format("\"num_experts\" is absent, {} is used (the default of {})", family.experts.number,
                     family.model_type));
  return family.experts.number;
}

/// mlp_only_layers are dense, and of the others all but every decoder_sparse_step-th.
std::set<int64_t> layers_with_experts(const ConfigReader& r, int64_t num_layers) {
  const int64_t step = r.integer("decoder_sparse_step", 1, kMaxLayers).value_or(1);
  const std::vector<int64_t> dense = r.ids("mlp_only_layers");
  for (const int64_t layer : dense)
    if (layer >= num_layers)
      r.refuse("mlp_only_layers", fmt::format("names layer {} of {}", layer, num_layers),
               fmt::format("name layers from 0 to {}", num_layers - 1));
  std::set<int64_t> layers;
  for (int64_t i = 0; i < num_layers; ++i)
    if ((i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end()) layers.insert(i);
  return layers;
}

/// Losses and noise of the router belong to the pre-training that the file describes: none is taken from it.
/// A run says so of a coefficient.
double told_aux_coef(const ConfigReader& r) {
  const Json* value = r.find("router_aux_loss_coef");
  return value && value->is_number() ? value->get<double>() : 0;
}

MoeConfig read_experts(const ConfigReader& r, const Family& family, int64_t num_layers) {
  const FamilyExperts& f = family.experts;
  MoeConfig moe;
  if (f.number == 0) return {};
  moe.num_experts = num_experts(r, family);
  if (moe.num_experts == 0 && f.in_all_layers)
    r.refuse(r.find("num_experts") ? "num_experts" : "num_local_experts",
             "0, and all layers of this family have experts", fmt::format("give 1 to {}", kMaxExperts));
  if (moe.num_experts == 0) return {};
  moe.names = f.names;
  moe.experts_per_token = size_of(r, family, "num_experts_per_tok", kMaxExperts, f.per_token);
  if (moe.experts_per_token > moe.num_experts)
    r.refuse("num_experts_per_tok",
             fmt::format("{} of {} experts take a token", moe.experts_per_token, moe.num_experts),
             fmt::format("give 1 to {}", moe.num_experts));
  if (f.size > 0) moe.expert_size = size_of(r, family, "moe_intermediate_size", kMaxFfn, f.size);
  if (f.shared_size > 0)
    moe.shared_size = size_of(r, family, "shared_expert_intermediate_size", kMaxFfn, f.shared_size);
  const std::optional<bool> normalizes = f.normalizes ? true : r.flag("norm_topk_prob");
  if (!normalizes)
    r.warn(fmt::format("\"norm_topk_prob\" is absent, {} is used: weights of experts are {}normalised",
                       f.normalizes_unset, f.normalizes_unset ? "" : "not "));
  moe.normalizes = normalizes.value_or(f.normalizes_unset);
  moe.file_aux_coef = told_aux_coef(r);
  if (!f.in_all_layers) {
    moe.layers = layers_with_experts(r, num_layers);
  } else {
    for (int64_t i = 0; i < num_layers; ++i) moe.layers.insert(i);
  }
  return moe.layers.empty() ? MoeConfig{} : moe;
}

/// The units of dense layers; where there are none the key may be absent.
int64_t dense_size(const ConfigReader& r, const Family& family, const ModelConfig& c) {
  const bool read = std::ssize(c.moe.layers) < c.num_layers || family.experts.size == 0;
  if (read) return size_of(r, family, "intermediate_size", kMaxFfn, family.intermediate_size);
  return r.integer("intermediate_size", 0, kMaxFfn).value_or(0);
}

void read_heads(const ConfigReader& r, const Family& family, ModelConfig& c) {
  c.num_heads = size_of(r, family, "num_attention_heads", kMaxHeads, family.num_heads);
  // null means "as many as query heads" even where the absent key has another default.
  const bool like_queries = r.has("num_key_value_heads") || family.num_kv_heads == 0;
  const auto kv = r.integer("num_key_value_heads", 1, kMaxHeads);
  c.num_kv_heads = kv ? *kv : like_queries ? c.num_heads : family.num_kv_heads;
  if (!kv && !like_queries)
    r.warn(fmt::format("\"num_key_value_heads\" is absent, {} is used", c.num_kv_heads));
  if (c.num_heads % c.num_kv_heads != 0)
    r.refuse("num_key_value_heads",
             fmt::format("{} does not divide num_attention_heads {}", c.num_kv_heads, c.num_heads));

  if (const auto dim = r.integer("head_dim", 1, kMaxHeadDim)) {
    c.head_dim = *dim;
  } else if (!r.has("head_dim") && family.head_dim != 0) {
    c.head_dim = family.head_dim;
    r.warn(
        fmt::format("\"head_dim\" is absent, {} is used (the default of {})", c.head_dim, family.model_type));
  } else {
    if (c.hidden_size % c.num_heads != 0)
      r.refuse("num_attention_heads",
               fmt::format("{} does not divide hidden_size {}, and there is no head_dim", c.num_heads,
                           c.hidden_size));
    c.head_dim = c.hidden_size / c.num_heads;
  }
  if (c.head_dim % 2 != 0 || c.head_dim > kMaxHeadDim)
    r.refuse("head_dim", fmt::format("{} is not an even number up to {}", c.head_dim, kMaxHeadDim));
}

void read_flags(const ConfigReader& r, const Family& family, ModelConfig& c) {
  c.tie_word_embeddings = r.flag("tie_word_embeddings").value_or(false);
  const Biases biases = family.attention_biases;
  c.o_bias = biases == Biases::as_attention_bias && r.flag("attention_bias").value_or(false);
  c.qkv_bias = c.o_bias || biases == Biases::queries_and_keys ||
               (biases == Biases::as_qkv_bias && r.flag("qkv_bias").value_or(true));
  c.mlp_bias = family.reads_mlp_bias && r.flag("mlp_bias").value_or(false);
  c.qk_norm = family.qk_norm;
}

bool any_layer_slides(const ConfigReader& r, Window window, const ModelConfig& c) {
  if (window == Window::all_layers || window == Window::if_set) return true;
  const Json* types = r.find("layer_types");
  const int64_t border = r.integer("max_window_layers", 0, kMaxLayers).value_or(28);
  if (!types) return window == Window::upper_layers ? border < c.num_layers : border > 0;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != c.num_layers)
    r.refuse("layer_types", fmt::format("it must be a list of num_hidden_layers = {} strings", c.num_layers));
  bool slides = false;
  for (const Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention")
      r.refuse("layer_types",
               type.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 100) + " is not supported",
               "only \"full_attention\" (and \"sliding_attention\" that is switched off) is");
    slides = slides || type == "sliding_attention";
  }
  return slides;
}

/// A window that covers every position is no window; anything narrower in use is refused.
void check_sliding_window(const ConfigReader& r, const Family& family, const ModelConfig& c) {
  if (family.window == Window::never) return;
  const bool by_flag = family.window != Window::if_set;
  const bool slides = any_layer_slides(r, family.window, c);
  const int64_t window = r.has("sliding_window") || !by_flag
                             ? r.integer("sliding_window", 0, int64_t{1} << 40).value_or(0)
                             : 4096;
  if ((by_flag && !r.flag("use_sliding_window").value_or(false)) || !slides) return;
  if (window == 0 || window >= c.max_position_embeddings) return;
  r.refuse(by_flag ? "use_sliding_window" : "sliding_window",
           fmt::format("{}sliding_window {} < max_position_embeddings {}: sliding-window attention is not "
                       "supported",
                       by_flag ? "true with " : "", window, c.max_position_embeddings),
           fmt::format("set {}, or max_position_embeddings to at most sliding_window",
                       by_flag ? "use_sliding_window to false" : "sliding_window to null"));
}

void read_tokens(const ConfigReader& r, const Family& family, const Json* generation, ModelConfig& c) {
  if (const auto pad = r.integer("pad_token_id", -1, c.vocab_size - 1)) c.pad_token_id = *pad;
  std::vector<int64_t> ids = r.ids("eos_token_id");
  bool given = r.has("eos_token_id");
  if (generation) {
    const ConfigReader g(*generation, r.source(), "generation_config.");
    const std::vector<int64_t> more = g.ids("eos_token_id");
    ids.insert(ids.end(), more.begin(), more.end());
    given = given || g.has("eos_token_id");
  }
  if (!given && family.default_eos >= 0 && family.default_eos < c.vocab_size) {
    ids.push_back(family.default_eos);
    r.warn(fmt::format("\"eos_token_id\" is absent, {} is used (the default of {})", family.default_eos,
                       family.model_type));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (int64_t id : ids) {
    if (id < c.vocab_size)
      c.eos_token_ids.push_back(static_cast<int32_t>(id));
    else
      c.lost_eos_token_ids.push_back(id);
  }
}

void check_products(const ConfigReader& r, const ModelConfig& c) {
  using Wide = __int128;
  const Wide q = Wide{c.num_heads} * c.head_dim, kv = Wide{c.num_kv_heads} * c.head_dim;
  const auto num_moe = static_cast<int64_t>(c.moe.layers.size());
  const Wide dense = Wide{c.intermediate_size} * (c.num_layers - num_moe),
             experts = (Wide{c.moe.num_experts} * c.moe.expert_size + c.moe.shared_size) * num_moe;
  const Wide attention = c.hidden_size * (3 * q + 2 * kv) * c.num_attention_layers();
  const DeltaConfig& d = c.delta;
  const Wide delta_nets = Wide{c.hidden_size} *
                          (2 * d.key_heads * d.key_dim + 3 * d.value_heads * d.value_dim) *
                          std::ssize(d.layers);
  const Wide total = attention + delta_nets + Wide{3} * c.hidden_size * (dense + experts) +
                     Wide{2} * c.vocab_size * c.hidden_size;
  if (q + 2 * kv > kMaxFfn)
    r.refuse("num_attention_heads", fmt::format("{} heads ({} of keys) x head_dim {} is more than {}",
                                                c.num_heads, c.num_kv_heads, c.head_dim, kMaxFfn));
  if (total > kMaxParameters)
    r.refuse("num_hidden_layers",
             fmt::format(
                 "{} layers of hidden_size {}, intermediate_size {}{} and vocab_size {} have more than 2^44 "
                 "parameters",
                 c.num_layers, c.hidden_size, c.intermediate_size,
                 num_moe > 0 ? fmt::format(", {} experts of {}", c.moe.num_experts, c.moe.expert_size) : "",
                 c.vocab_size),
             "correct the sizes of this file");
}

/// What transformers 4 calls rope_scaling: the object without theta, which it reads at the top level.
Json scaling_of(Json rope) {
  rope["rope_type"] = rope_type(rope);
  rope.erase("rope_theta");
  return rope;
}

}  // namespace

ModelConfig parse_model_config(const Json& config, const Json* generation_config, const std::string& source,
                               std::vector<std::string>* warnings) {
  const ConfigReader top(config, source, "", warnings);
  const Family& family = detect_family(top);
  const Json& text = text_config(top, config, family);
  const ConfigReader r(text, source, family.in_vision_folder ? "text_config." : "", warnings);
  refuse_unsupported(r, family);
  if (family.in_vision_folder) refuse_unsupported(top, family);
  ModelConfig c;
  c.family = family.model_type;
  c.vocab_size = size_of(r, family, "vocab_size", kMaxVocab, family.vocab_size);
  c.hidden_size = size_of(r, family, "hidden_size", kMaxWidth, family.hidden_size);
  c.num_layers = size_of(r, family, "num_hidden_layers", kMaxLayers, family.num_layers);
  c.moe = read_experts(r, family, c.num_layers);
  c.intermediate_size = dense_size(r, family, c);
  if (c.moe.expert_size == 0) c.moe.expert_size = c.intermediate_size;
  c.max_position_embeddings =
      size_of(r, family, "max_position_embeddings", kMaxPositions, family.max_positions);
  read_heads(r, family, c);
  read_flags(r, family, c);
  if (const auto eps = r.number("rms_norm_eps", 1e-12, 1.0))
    c.rms_norm_eps = *eps;
  else
    r.warn(fmt::format("\"rms_norm_eps\" is absent, {:g} is used", c.rms_norm_eps = family.norm_eps));
  c.initializer_range = r.number("initializer_range", 0.0, 100.0).value_or(0.02);
  c.rope.theta = family.rope_theta;
  if (family.is_hybrid) read_hybrid(top, r, family, rotated_fraction(r, text), c);
  c.rope = parse_rope(r, text, c, warnings);
  check_sliding_window(r, family, c);
  read_tokens(r, family, generation_config, c);
  check_products(r, c);
  return c;
}

Json export_config(const Json& source, const ModelConfig& config, DType dtype, bool set_dtype) {
  Json out = source;
  if (config.is_hybrid) {  // transformers 5 alone reads these: there is no older spelling
    for (Json* object : {&out, out.contains("text_config") ? &out["text_config"] : &out})
      if (set_dtype && object->is_object())
        for (const char* key : {"dtype", "torch_dtype"})
          if (key == std::string_view("dtype") || object->contains(key)) (*object)[key] = torch_name(dtype);
    return out;
  }
  const auto absent = [&](const char* key) {
    return !out.contains(key) || out[key].is_null() || (out[key].is_object() && out[key].empty());
  };
  const Json rope = rope_object(source);
  const bool plain = rope_type(rope) == "default";
  // The rope object's own may be another one; what is added to the file below leaves it to this key.
  if (absent("rope_theta") || out["rope_theta"] != config.rope.theta) out["rope_theta"] = config.rope.theta;
  if (absent("rope_scaling")) out["rope_scaling"] = plain ? Json(nullptr) : scaling_of(rope);
  if (absent("rope_parameters")) {
    Json parameters = plain ? Json::object() : rope;
    parameters["rope_type"] = rope_type(rope);
    parameters["rope_theta"] = config.rope.theta;
    out["rope_parameters"] = std::move(parameters);
  }
  const char* other = !absent("dtype") ? "dtype" : "torch_dtype";
  const Json name = set_dtype || absent(other) ? Json(torch_name(dtype)) : out[other];
  for (const char* key : {"torch_dtype", "dtype"})
    if (set_dtype || absent(key)) out[key] = name;
  // Some readers know one of them only, and take their own number where it is absent.
  if (!config.moe.layers.empty())
    for (const char* key : {"num_experts", "num_local_experts"})
      if (absent(key)) out[key] = config.moe.num_experts;
  return out;
}

}  // namespace temper

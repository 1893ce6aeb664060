#include "src/io/hf/hf_rope.h"

#include "src/core/check.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

constexpr double kMaxFactor = 1e6, kMaxTheta = 1e15;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr const char* kTypes = "supported: default, linear, llama3, yarn, dynamic, longrope";

/// Name of the object that rules; empty if there is none.
std::string rope_key(const Json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const auto it = config.find(key); it != config.end() && !it->is_null() && !it->empty()) return key;
  return "";
}

double required(const ConfigReader& rope, const char* key, double low, double high, const std::string& type) {
  const auto value = rope.number(key, low, high);
  if (!value) rope.refuse(key, "rope type " + type + " needs it", "add this key");
  return *value;
}

/// Absent, null and 0 leave it to the default of the formula.
std::optional<double> unless_zero(const ConfigReader& rope, const char* key) {
  const auto value = rope.number(key, 0.0, kMaxFactor);
  return value && *value != 0.0 ? value : std::nullopt;
}

void read_llama3(const ConfigReader& rope, RopeConfig& out) {
  out.factor = required(rope, "factor", 1e-6, kMaxFactor, out.type);
  out.low_freq_factor = required(rope, "low_freq_factor", 1e-6, kMaxFactor, out.type);
  out.high_freq_factor = required(rope, "high_freq_factor", 1e-6, kMaxFactor, out.type);
  if (*out.high_freq_factor <= *out.low_freq_factor)
    rope.refuse("high_freq_factor", fmt::format("{} is not above low_freq_factor {}", *out.high_freq_factor,
                                                *out.low_freq_factor));
}

void read_yarn(const ConfigReader& rope, RopeConfig& out) {
  if (!rope.has("factor")) rope.refuse("factor", "rope type yarn needs it", "add this key");
  out.factor = rope.number("factor", 1e-6, kMaxFactor);
  out.beta_fast = unless_zero(rope, "beta_fast");
  out.beta_slow = unless_zero(rope, "beta_slow");
  out.mscale = unless_zero(rope, "mscale");
  out.mscale_all_dim = unless_zero(rope, "mscale_all_dim");
  out.attention_factor = rope.number("attention_factor", 1e-6, kMaxFactor);
  out.truncate = rope.flag("truncate").value_or(true);
}

void read_longrope(const ConfigReader& rope, const ModelConfig& model, RopeConfig& out) {
  const size_t half = static_cast<size_t>(model.rope_width() / 2);
  out.short_factor = rope.numbers("short_factor", half, 1e-6, kMaxFactor);
  out.long_factor = rope.numbers("long_factor", half, 1e-6, kMaxFactor);
  out.factor = rope.number("factor", 1e-6, kMaxFactor);
  out.attention_factor = rope.number("attention_factor", 1e-6, kMaxFactor);
}

void refuse_unsupported(const ConfigReader& rope, const Json& object, const ModelConfig& model) {
  for (const auto& [key, value] : object.items())
    if (value.is_object())
      rope.refuse(key, "a rope object per layer type is not supported", "use one flat object for all layers");
  if (const auto factor = rope.number("partial_rotary_factor", -1e9, 1e9);
      factor && *factor != 1.0 && !model.is_hybrid)
    rope.refuse("partial_rotary_factor", fmt::format("{} is not supported", *factor), "only 1 is");
}

}  // namespace

Json rope_object(const Json& config) {
  const std::string key = rope_key(config);
  return key.empty() ? Json::object() : config[key];
}

std::string rope_type(const Json& rope) {
  for (const char* key : {"rope_type", "type"})
    if (const auto it = rope.find(key); it != rope.end() && it->is_string()) return it->get<std::string>();
  return "default";
}

std::optional<double> rotated_fraction(const ConfigReader& top, const Json& config) {
  const std::string key = rope_key(config);
  const Json object = rope_object(config);
  return ConfigReader(object, top.source(), key + ".").number("partial_rotary_factor", 0.0, 1.0);
}

RopeConfig parse_rope(const ConfigReader& top, const Json& config, const ModelConfig& model,
                      std::vector<std::string>* warnings) {
  const std::string key = rope_key(config);
  const Json object = rope_object(config);
  const ConfigReader rope(object, top.source(), key.empty() ? "rope_parameters." : key + ".", warnings);
  refuse_unsupported(rope, object, model);
  if (key == "rope_scaling" && config.contains("rope_parameters") && config["rope_parameters"].is_object() &&
      rope_type(config["rope_parameters"]) != rope_type(object))
    top.warn("\"rope_scaling\" and \"rope_parameters\" differ, rope_scaling is used");

  RopeConfig out;
  out.max_position_embeddings = model.max_position_embeddings;
  const auto inner = rope.number("rope_theta", 1.0 + 1e-6, kMaxTheta);
  const auto outer = top.number("rope_theta", 1.0 + 1e-6, kMaxTheta);
  if (!inner && !outer) top.warn(fmt::format("\"rope_theta\" is absent, {:.0f} is used", model.rope.theta));
  out.theta = inner ? *inner : outer.value_or(model.rope.theta);

  const auto named = rope.text("rope_type"), synonym = rope.text("type");
  out.type = named ? *named : synonym.value_or("default");
  const auto top_context = top.integer("original_max_position_embeddings", 1, kMaxPositions);
  const auto inner_context = rope.integer("original_max_position_embeddings", 1, kMaxPositions);
  if (out.type == "default") return out;
  if (out.type == "linear" || out.type == "dynamic") {
    out.factor = required(rope, "factor", 1e-6, kMaxFactor, out.type);
    return out;
  }
  out.original_max_position_embeddings =
      top_context ? *top_context : inner_context.value_or(model.max_position_embeddings);
  if (out.type == "llama3")
    read_llama3(rope, out);
  else if (out.type == "yarn")
    read_yarn(rope, out);
  else if (out.type == "longrope")
    read_longrope(rope, model, out);
  else
    rope.refuse(named ? "rope_type" : "type", quote_name(out.type) + " is not supported", kTypes);
  if (out.type != "llama3" && !out.factor)
    out.factor = static_cast<double>(model.max_position_embeddings) /
                 static_cast<double>(*out.original_max_position_embeddings);
  return out;
}

}  // namespace temper

#include "src/nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/core/check.h"

namespace temper {
namespace {

/// theta^(2i/dh), correctly rounded in fp32.
std::vector<float> powers(double theta, int64_t head_dim) {
  std::vector<float> p;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    p.push_back(static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), exponent)));
  }
  return p;
}

double needed(const std::optional<double>& value, const char* key, const RopeConfig& config) {
  CHECK(value.has_value(), "rope type {} without {}", config.type, key);
  return *value;
}

/// Context that the unscaled frequencies were trained on.
double original_context(const RopeConfig& config) {
  const auto context = config.original_max_position_embeddings ? config.original_max_position_embeddings
                                                               : config.max_position_embeddings;
  CHECK(context && *context > 0, "rope type {} without a context length", config.type);
  return static_cast<double>(*context);
}

/// `factor`, or the growth of the context if the file does not say it.
double scale_factor(const RopeConfig& config) {
  if (config.factor) return *config.factor;
  CHECK(config.max_position_embeddings, "rope type {} without factor", config.type);
  return static_cast<double>(*config.max_position_embeddings) / original_context(config);
}

void scale_linear(const RopeConfig& config, std::vector<float>& f) {
  const float factor = static_cast<float>(needed(config.factor, "factor", config));
  for (float& x : f) x /= factor;
}

void scale_llama3(const RopeConfig& config, std::vector<float>& f) {
  const double context = original_context(config);
  const float factor = static_cast<float>(needed(config.factor, "factor", config));
  const double low = needed(config.low_freq_factor, "low_freq_factor", config);
  const double high = needed(config.high_freq_factor, "high_freq_factor", config);
  const float longest = static_cast<float>(context / low), shortest = static_cast<float>(context / high);
  for (float& x : f) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / x;
    if (wavelength < shortest) continue;
    if (wavelength > longest) {
      x /= factor;
      continue;
    }
    const float keep =
        (static_cast<float>(context) / wavelength - static_cast<float>(low)) / static_cast<float>(high - low);
    x = (1.0f - keep) * x / factor + keep * x;
  }
}

void scale_yarn(const RopeConfig& config, double head_dim, const std::vector<float>& p, RopeTable& table) {
  const double context = original_context(config), scale = scale_factor(config);
  const auto correction = [&](double rotations) {
    return head_dim * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(config.theta));
  };
  double low = correction(config.beta_fast.value_or(32.0)), high = correction(config.beta_slow.value_or(1.0));
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < p.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    table.inverse_frequency[i] =
        (1.0f / (static_cast<float>(scale) * p[i])) * (1.0f - keep) + (1.0f / p[i]) * keep;
  }
  const auto magnitude = [&](double m) { return scale <= 1.0 ? 1.0 : 0.1 * m * std::log(scale) + 1.0; };
  const double mscale = config.mscale.value_or(0.0), mscale_all = config.mscale_all_dim.value_or(0.0);
  const bool both = mscale != 0.0 && mscale_all != 0.0;
  table.attention_factor =
      config.attention_factor.value_or(both ? magnitude(mscale) / magnitude(mscale_all) : magnitude(1.0));
}

void scale_longrope(const RopeConfig& config, int64_t max_positions, const std::vector<float>& p,
                    RopeTable& table) {
  const double context = original_context(config), scale = scale_factor(config);
  const std::vector<double>& stretch =
      static_cast<double>(max_positions) > context ? config.long_factor : config.short_factor;
  CHECK(stretch.size() == p.size(), "{} longrope factors for {} frequencies", stretch.size(), p.size());
  for (size_t i = 0; i < p.size(); ++i)
    table.inverse_frequency[i] = 1.0f / (static_cast<float>(stretch[i]) * p[i]);
  const double grown = scale <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(scale) / std::log(context));
  table.attention_factor = config.attention_factor.value_or(grown);
}

void refuse_grown_dynamic(const RopeConfig& config, int64_t max_positions) {
  CHECK(config.max_position_embeddings, "rope type dynamic without max_position_embeddings");
  if (max_positions <= *config.max_position_embeddings) return;
  fail(Exit::data,
       {.what = "rope type \"dynamic\" is not supported beyond max_position_embeddings",
        .where = "config.json, rope_scaling.rope_type",
        .why = fmt::format("the context is {} tokens{}", max_positions, why_no_longer_context(config)),
        .fix = fmt::format("use at most {} tokens of context, or rope type \"yarn\"",
                           *config.max_position_embeddings)});
}

template <class A>
void fill(const RopeTable& table, int64_t count, A* cosine, A* sine) {
  const A factor = static_cast<A>(table.attention_factor);
  for (int64_t t = 0; t < count; ++t)
    for (const float f : table.inverse_frequency) {
      const double angle = static_cast<double>(static_cast<float>(t) * f);
      *cosine++ = static_cast<A>(std::cos(angle)) * factor;
      *sine++ = static_cast<A>(std::sin(angle)) * factor;
    }
}

}  // namespace

RopeTable make_rope_table(const RopeConfig& config, int64_t head_dim, int64_t max_positions) {
  CHECK(head_dim > 0 && head_dim % 2 == 0, "head_dim {}", head_dim);
  const std::vector<float> p = powers(config.theta, head_dim);
  RopeTable table;
  for (const float x : p) table.inverse_frequency.push_back(1.0f / x);
  if (config.type == "linear")
    scale_linear(config, table.inverse_frequency);
  else if (config.type == "llama3")
    scale_llama3(config, table.inverse_frequency);
  else if (config.type == "yarn")
    scale_yarn(config, static_cast<double>(head_dim), p, table);
  else if (config.type == "longrope")
    scale_longrope(config, max_positions, p, table);
  else if (config.type == "dynamic")
    refuse_grown_dynamic(config, max_positions);
  else
    CHECK(config.type == "default", "rope type {}", config.type);
  return table;
}

std::string why_no_longer_context(const RopeConfig& config) {
  if (config.type != "dynamic") return "";
  return fmt::format(
      "; rope type \"dynamic\" reaches to max_position_embeddings = {}: beyond it the frequencies would "
      "depend on "
      "the longest sequence of a batch",
      config.max_position_embeddings.value_or(0));
}

void fill_cos_sin(const RopeTable& table, int64_t positions_count, Tensor cosine, Tensor sine) {
  const int64_t half = static_cast<int64_t>(table.inverse_frequency.size());
  CHECK_SHAPE(cosine, positions_count, half);
  CHECK_SHAPE(sine, positions_count, half);
  if (cosine.dtype == DType::f64)
    fill(table, positions_count, cosine.as<double>(), sine.as<double>());
  else
    fill(table, positions_count, cosine.as<float>(), sine.as<float>());
}

}  // namespace temper

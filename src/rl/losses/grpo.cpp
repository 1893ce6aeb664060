#include "src/rl/losses/grpo.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/check.h"
#include "src/rl/choices.h"

namespace temper {
namespace {

double number_in(const char* key, double value, double low, double high) {
  if (value >= low && value <= high) return value;
  fail(Exit::usage, {.what = fmt::format("illegal value of algorithm.{}", key),
                     .where = fmt::format("algorithm.{}", key),
                     .why = fmt::format("{} is not in [{}, {}]", value, low, high),
                     .fix = fmt::format("write a number from {} to {}", low, high)});
}

constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kLargestLogWeight = 20;  // verl's
constexpr double kLargestK3 = 10;         // verl's

}  // namespace

Grpo::Grpo(const AlgorithmConfig& c)
    : clip_low_(number_in("clip_low", c.clip_low, 0, kLargest)),
      clip_high_(number_in("clip_high", c.clip_high, 0, kLargest)),
      ratio_clamp_(number_in("ratio_clamp", c.ratio_clamp, 0, 700)),  // exp overflows at 709.8
      tis_cap_(number_in("tis_cap", c.tis_cap, 0, kLargest)),
      kl_coef_(number_in("kl_coef", c.kl_coef, 0, kLargest)),
      entropy_coef_(number_in("entropy_coef", c.entropy_coef, -kLargest, kLargest)),
      advantage_eps_(number_in("advantage_eps", c.advantage_eps, 0, kLargest)),
      kl_limits_{ratio_clamp_, c.k3_clamp ? kLargestK3 : 0},
      kl_in_reward_(choice_index("algorithm.kl_in", c.kl_in, kKlPlaces) == 1),
      kl_estimator_(
          static_cast<KlEstimator>(choice_index("algorithm.kl_estimator", c.kl_estimator, kKlEstimators))),
      aggregation_(
          static_cast<Aggregation>(choice_index("algorithm.aggregation", c.aggregation, kAggregations))),
      single_group_(static_cast<SingleGroup>(
          choice_index("algorithm.single_group", c.single_group, kSingleGroupRules))) {}

void Grpo::shape_rewards(std::span<Group> groups) const {
  if (kl_in_reward_ && kl_coef_ != 0) subtract_kl_from_rewards(groups, kl_estimator_, kl_coef_, kl_limits_);
}

void Grpo::advantages(std::span<Group> groups) const {
  grpo_advantages(groups, advantage_eps_, single_group_);
}

Grpo::PolicyTerm Grpo::policy_term(double logprob, double old_logprob, double advantage) const {
  const double difference = logprob - old_logprob;
  const bool clamp = ratio_clamp_ > 0;
  const double rho = std::exp(clamp ? std::clamp(difference, -ratio_clamp_, ratio_clamp_) : difference);
  if (advantage == 0) return {std::isnan(rho) ? rho : 0, 0, false};
  const double free = -advantage * rho;
  const double held = -advantage * std::clamp(rho, 1 - clip_low_, 1 + clip_high_);
  if (held > free) return {held, 0, true};
  const bool outside = clamp && std::fabs(difference) > ratio_clamp_;
  return {free, outside ? 0 : free, false};
}

/// Exactly 1 on policy.
double Grpo::importance_weight(double old_logprob, double sampled_logprob) const {
  if (tis_cap_ == 0 || old_logprob == sampled_logprob) return 1;
  return std::min(std::exp(std::clamp(old_logprob - sampled_logprob, -kLargestLogWeight, kLargestLogWeight)),
                  tis_cap_);
}

LossResult Grpo::loss(std::span<const double> logprob, std::span<const double> entropy,
                      const LossInputs& in) const {
  const size_t n = logprob.size();
  const bool reference = !in.ref_logprob.empty();
  const double kl_coef = kl_in_reward_ ? 0 : kl_coef_;
  CHECK(
      entropy.size() == n && in.old_logprob.size() == n && in.advantage.size() == n && in.weight.size() == n,
      "loss of {} tokens: {} entropies, {} old log-probs, {} advantages, {} weights", n, entropy.size(),
      in.old_logprob.size(), in.advantage.size(), in.weight.size());
  const bool resampled = !in.sampled_logprob.empty();
  CHECK(!resampled || in.sampled_logprob.size() == n, "{} log-probs of sampling of {}",
        in.sampled_logprob.size(), n);
  CHECK(!reference || in.ref_logprob.size() == n, "{} reference log-probs of {}", in.ref_logprob.size(), n);
  CHECK(reference || kl_coef == 0 || n == 0, "a KL term without reference log-probs");

  LossResult result{std::vector<double>(n), std::vector<double>(n), {}};
  double pg_sum = 0, kl_sum = 0, entropy_sum = 0, clipped = 0, old_minus_new = 0, counted = 0, weights = 0,
         capped = 0, kl_clamped = 0;
  for (size_t t = 0; t < n; ++t) {
    const double weight = in.weight[t];
    if (weight == 0) continue;
    const PolicyTerm pg = policy_term(logprob[t], in.old_logprob[t], in.advantage[t]);
    const KlTerm kl =
        reference ? kl_term(kl_estimator_, logprob[t], in.ref_logprob[t], kl_limits_) : KlTerm{0, 0};
    const double importance = resampled ? importance_weight(in.old_logprob[t], in.sampled_logprob[t]) : 1;
    weights += importance;
    capped +=
        resampled && tis_cap_ > 0 && in.old_logprob[t] != in.sampled_logprob[t] && importance >= tis_cap_;
    pg_sum += weight * (importance * pg.value);
    kl_sum += weight * kl.value;
    entropy_sum += weight * entropy[t];
    clipped += pg.clipped;
    kl_clamped += kl.clamped;
    old_minus_new += in.old_logprob[t] - logprob[t];
    counted += 1;
    const double gradient = importance * pg.gradient;
    result.dlogprob[t] = weight * (kl_coef == 0 ? gradient : gradient + kl_coef * kl.gradient);
    result.dentropy[t] = entropy_coef_ == 0 ? 0 : -(weight * entropy_coef_);
  }
  double loss = pg_sum;
  if (kl_coef != 0) loss += kl_coef * kl_sum;
  if (entropy_coef_ != 0) loss -= entropy_coef_ * entropy_sum;
  result.sums = {{"actor/loss", loss},        {"actor/pg_loss", pg_sum},
                 {"actor/kl_loss", kl_sum},   {"actor/entropy", entropy_sum},
                 {"clipped_tokens", clipped}, {"old_minus_new_logprob", old_minus_new},
                 {"counted_tokens", counted}, {"importance_weights", weights},
                 {"capped_weights", capped},  {"clamped_kl", kl_clamped}};
  return result;
}

Metrics Grpo::metrics(const std::map<std::string, double>& sums) const {
  Metrics metrics;
  for (const char* key : {"actor/loss", "actor/pg_loss", "actor/kl_loss", "actor/entropy"}) {
    metrics[key] = sums.at(key);
  }
  const double counted = std::max(sums.at("counted_tokens"), 1.0);
  metrics["actor/pg_clipfrac"] = sums.at("clipped_tokens") / counted;
  metrics["actor/ppo_kl"] = sums.at("old_minus_new_logprob") / counted;
  metrics["actor/tis_weight"] = sums.at("importance_weights") / counted;
  metrics["actor/tis_clipfrac"] = sums.at("capped_weights") / counted;
  metrics["actor/kl_clipfrac"] = sums.at("clamped_kl") / counted;
  return metrics;
}

std::string Grpo::describe() const {
  std::string clamp = ratio_clamp_ > 0 ? fmt::format("{}", ratio_clamp_) : "off";
  std::string kl = kl_coef_ == 0 ? "off"
                                 : fmt::format("{} {} in the {}", kl_coef_,
                                               kKlEstimators[static_cast<size_t>(kl_estimator_)],
                                               kl_in_reward_ ? "reward" : "loss");
  std::string bonus = entropy_coef_ == 0 ? "off" : fmt::format("{}", entropy_coef_);
  return fmt::format(
      "grpo: ratio clip [1 - {}, 1 + {}], ratio clamp {}, importance weights of older samples {}, KL {}, "
      "entropy bonus {}, {}, advantage eps {}, groups of one: {}",
      clip_low_, clip_high_, clamp, tis_cap_ == 0 ? "off" : fmt::format("up to {}", tis_cap_), kl, bonus,
      kAggregations[static_cast<size_t>(aggregation_)], advantage_eps_,
      kSingleGroupRules[static_cast<size_t>(single_group_)]);
}

}  // namespace temper

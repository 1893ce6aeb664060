#include "src/rl/policy_gradient.h"

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
constexpr double kLargestK3 = 10;  // verl's

LossOptions loss_options(const AlgorithmConfig& c, const LossTraits& traits) {
  const double dual = number_in("dual_clip", c.dual_clip, 0, kLargest);
  return {.clip_low = number_in("clip_low", c.clip_low, 0, kLargest),
          .clip_high = number_in("clip_high", c.clip_high, 0, kLargest),
          .dual_clip = traits.dual_clips ? dual : 0,
          .ratio_clamp = number_in("ratio_clamp", c.ratio_clamp, 0, 700)};  // exp overflows at 709.8
}

/// With a teacher and no rewards there is nothing to compare, and nothing to leave out.
SingleGroup single_group(const AlgorithmConfig& c, const RewardConfig& rewards) {
  const auto rule =
      static_cast<SingleGroup>(choice_index("algorithm.single_group", c.single_group, kSingleGroupRules));
  return rewards.functions.empty() && c.teacher_coef > 0 ? SingleGroup::zero : rule;
}

AdvantageOptions advantage_options(const AlgorithmConfig& c, const RewardConfig& rewards) {
  AdvantageOptions options{.eps = number_in("advantage_eps", c.advantage_eps, 0, kLargest),
                           .gamma = number_in("gamma", c.gamma, 0, 1),
                           .single_group = single_group(c, rewards),
                           .scale = static_cast<AdvantageScale>(
                               choice_index("algorithm.advantage_std", c.advantage_std, kAdvantageScales))};
  for (const RewardFunctionConfig& function : rewards.functions)
    options.parts.emplace_back(function.name, function.weight);
  return options;
}

/// Sums of an update beside those that are metrics themselves.
struct TokenSums {
  double pg = 0, kl = 0, entropy = 0, clipped = 0, dual_clipped = 0, old_minus_new = 0, counted = 0,
         weights = 0, squares = 0, capped = 0, kl_clamped = 0;
};

}  // namespace

PolicyGradient::PolicyGradient(const AlgorithmConfig& c, const RewardConfig& rewards)
    : name_(c.name),
      loss_traits_(kLosses[choice_index("algorithm.loss", c.loss, kLossNames)]),
      policy_loss_(methods::row_of(kPolicyLosses, loss_traits_.name).loss),
      loss_options_(loss_options(c, loss_traits_)),
      advantage_traits_(kAdvantages[choice_index("algorithm.advantage", c.advantage, kAdvantageNames)]),
      advantage_options_(advantage_options(c, rewards)),
      importance_(importance_rule(c)),
      kl_coef_(number_in("kl_coef", c.kl_coef, 0, kLargest)),
      entropy_coef_(number_in("entropy_coef", c.entropy_coef, -kLargest, kLargest)),
      teacher_coef_(number_in("teacher_coef", c.teacher_coef, 0, kLargest)),
      kl_limits_{loss_options_.ratio_clamp, c.k3_clamp ? kLargestK3 : 0},
      kl_in_reward_(choice_index("algorithm.kl_in", c.kl_in, kKlPlaces) == 1),
      mask_truncated_(c.mask_truncated),
      kl_estimator_(
          static_cast<KlEstimator>(choice_index("algorithm.kl_estimator", c.kl_estimator, kKlEstimators))),
      aggregation_(
          static_cast<Aggregation>(choice_index("algorithm.aggregation", c.aggregation, kAggregations))) {
  number_in("tis_cap", c.tis_cap, 0, kLargest);
  advantage_options_.kl_coef = kl_in_reward_ ? kl_coef_ : 0;
  advantage_options_.kl_estimator = kl_estimator_;
  advantage_options_.kl_limits = kl_limits_;
}

void PolicyGradient::shape_rewards(std::span<Group> groups) const {
  if (kl_in_reward_ && kl_coef_ != 0) subtract_kl_from_rewards(groups, kl_estimator_, kl_coef_, kl_limits_);
}

void PolicyGradient::advantages(std::span<Group> groups) const {
  if (mask_truncated_) mask_truncated(groups);
  fill_advantages(advantage_traits_, groups, advantage_options_);
  if (teacher_coef_ != 0) subtract_teacher(groups, teacher_coef_);
}

LossResult PolicyGradient::loss(std::span<const double> logprob, std::span<const double> entropy,
                                const LossInputs& in) const {
  const size_t n = logprob.size();
  const bool reference = !in.ref_logprob.empty();
  const double kl_coef = kl_in_reward_ ? 0 : kl_coef_;
  CHECK(
      entropy.size() == n && in.old_logprob.size() == n && in.advantage.size() == n && in.weight.size() == n,
      "loss of {} tokens: {} entropies, {} old log-probs, {} advantages, {} weights", n, entropy.size(),
      in.old_logprob.size(), in.advantage.size(), in.weight.size());
  CHECK(in.sampled_logprob.empty() || in.sampled_logprob.size() == n, "{} log-probs of sampling of {}",
        in.sampled_logprob.size(), n);
  CHECK(!reference || in.ref_logprob.size() == n, "{} reference log-probs of {}", in.ref_logprob.size(), n);
  CHECK(reference || kl_coef == 0 || n == 0, "a KL term without reference log-probs");

  std::vector<TokenTerm> terms(n);
  policy_loss_({logprob, in.old_logprob, in.advantage, in.weight, in.sequence_begin}, loss_options_, terms);
  const std::vector<ImportanceWeight> weights =
      importance_weights(importance_, in.old_logprob, in.sampled_logprob, in.weight, in.sequence_begin);
  LossResult result{std::vector<double>(n), std::vector<double>(n), {}};
  TokenSums sum;
  for (size_t t = 0; t < n; ++t) {
    const double weight = in.weight[t];
    if (weight == 0) continue;
    const TokenTerm& pg = terms[t];
    const KlTerm kl =
        reference ? kl_term(kl_estimator_, logprob[t], in.ref_logprob[t], kl_limits_) : KlTerm{0, 0};
    const double importance = weights[t].value;
    sum.weights += importance;
    sum.squares += importance * importance;
    sum.capped += weights[t].bounded;
    sum.pg += weight * (importance * pg.value);
    sum.kl += weight * kl.value;
    sum.entropy += weight * entropy[t];
    sum.clipped += pg.clipped;
    sum.dual_clipped += pg.dual_clipped;
    sum.kl_clamped += kl.clamped;
    sum.old_minus_new += in.old_logprob[t] - logprob[t];
    sum.counted += 1;
    const double gradient = importance * pg.gradient;
    result.dlogprob[t] = weight * (kl_coef == 0 ? gradient : gradient + kl_coef * kl.gradient);
    result.dentropy[t] = entropy_coef_ == 0 ? 0 : -(weight * entropy_coef_);
  }
  double loss = sum.pg;
  if (kl_coef != 0) loss += kl_coef * sum.kl;
  if (entropy_coef_ != 0) loss -= entropy_coef_ * sum.entropy;
  result.sums = {{"actor/loss", loss},
                 {"actor/pg_loss", sum.pg},
                 {"actor/kl_loss", sum.kl},
                 {"actor/entropy", sum.entropy},
                 {"clipped_tokens", sum.clipped},
                 {"old_minus_new_logprob", sum.old_minus_new},
                 {"counted_tokens", sum.counted},
                 {"importance_weights", sum.weights},
                 {"squared_weights", sum.squares},
                 {"capped_weights", sum.capped},
                 {"clamped_kl", sum.kl_clamped}};
  if (loss_options_.dual_clip > 0) result.sums["dual_clipped_tokens"] = sum.dual_clipped;
  return result;
}

Metrics PolicyGradient::metrics(const std::map<std::string, double>& sums) const {
  Metrics metrics;
  for (const char* key : {"actor/loss", "actor/pg_loss", "actor/kl_loss", "actor/entropy"}) {
    metrics[key] = sums.at(key);
  }
  const double counted = std::max(sums.at("counted_tokens"), 1.0);
  metrics["actor/pg_clipfrac"] = sums.at("clipped_tokens") / counted;
  metrics["actor/ppo_kl"] = sums.at("old_minus_new_logprob") / counted;
  metrics["actor/tis_weight"] = sums.at("importance_weights") / counted;
  metrics["actor/tis_clipfrac"] = sums.at("capped_weights") / counted;
  const double weights = sums.at("importance_weights"), squares = sums.at("squared_weights");
  metrics["actor/tis_ess"] = squares > 0 ? weights * weights / (counted * squares) : 0;
  metrics["actor/kl_clipfrac"] = sums.at("clamped_kl") / counted;
  if (loss_options_.dual_clip > 0)
    metrics["actor/pg_clipfrac_lower"] = sums.at("dual_clipped_tokens") / counted;
  return metrics;
}

std::string PolicyGradient::describe() const {
  const auto or_off = [](double value) { return value == 0 ? std::string("off") : fmt::format("{}", value); };
  std::string loss = fmt::format("loss {}", loss_traits_.name),
              advantage = std::string(advantage_traits_.name);
  if (loss_traits_.clips)
    loss += fmt::format(", ratio clip [1 - {}, 1 + {}]", loss_options_.clip_low, loss_options_.clip_high);
  if (loss_traits_.dual_clips && loss_options_.dual_clip > 0)
    loss += fmt::format(", dual clip {}", loss_options_.dual_clip);
  if (loss_traits_.clamps) loss += ", ratio clamp " + or_off(loss_options_.ratio_clamp);
  if (advantage_traits_.scales)
    advantage +=
        fmt::format(" (std: {}, eps {})", kAdvantageScales[static_cast<size_t>(advantage_options_.scale)],
                    advantage_options_.eps);
  const std::string kl = kl_coef_ == 0 ? "off"
                                       : fmt::format("{} {} in the {}", kl_coef_,
                                                     kKlEstimators[static_cast<size_t>(kl_estimator_)],
                                                     kl_in_reward_ ? "reward" : "loss");
  const std::string importance =
      importance_.on
          ? fmt::format("by {}, {} to [{}, {}]", kImportanceLevels[static_cast<size_t>(importance_.level)],
                        kImportanceForms[static_cast<size_t>(importance_.form)], importance_.low,
                        importance_.high)
          : "off";
  return fmt::format(
      "{}: advantage {}, groups of one: {}{}; {}; importance weights of older samples {}, KL {}, entropy "
      "bonus "
      "{}, {}",
      name_, advantage, kSingleGroupRules[static_cast<size_t>(advantage_options_.single_group)],
      mask_truncated_ ? ", responses that were cut left out" : "", loss, importance, kl,
      or_off(entropy_coef_), kAggregations[static_cast<size_t>(aggregation_)]);
}

}  // namespace temper

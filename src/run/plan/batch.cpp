#include "src/run/plan/batch.h"

#include <algorithm>

#include "src/config/methods.h"
#include "src/core/check.h"
#include "src/core/rng.h"

namespace temper {
namespace {

constexpr int64_t kMaxSamples = 2147483647;        // indices of samples are 32-bit
constexpr int64_t kMaxUpdates = int64_t{1} << 53;  // still exact as a number in JSON
constexpr const char* kSamplesKey = "train.samples_per_update";
constexpr const char* kUpdatesKey = "train.updates_per_step";

std::vector<Json> as_json(const std::vector<int64_t>& values) { return {values.begin(), values.end()}; }

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Resolves samples_per_update and updates_per_step of a step of b.samples_per_step samples.
class Division {
 public:
  Division(const TrainConfig& train, BatchPlan& batch, std::vector<PlanError>& errors)
      : train_(train), batch_(batch), errors_(errors), samples_(batch.samples_per_step) {}

  void resolve() {
    const bool resolved = train_.samples_per_update ? from_samples() : from_updates();
    if (!resolved) return;
    const int64_t used = batch_.samples_per_update * batch_.updates_per_step;
    batch_.dropped_samples = std::max<int64_t>(0, samples_ - used);
    batch_.last_update_samples = batch_.samples_per_update - std::max<int64_t>(0, used - samples_);
  }

 private:
  bool keep() const { return train_.last_partial == "keep"; }
  bool drop() const { return train_.last_partial == "drop"; }

  bool fail_at(const char* key, std::string message, std::vector<int64_t> legal) {
    errors_.push_back({key, "", std::move(message), as_json(legal)});
    return false;
  }

  bool from_samples() {
    const int64_t size = *train_.samples_per_update, rest = samples_ % size;
    if (rest != 0 && !keep() && !drop())
      return fail_at(
          kSamplesKey,
          fmt::format("{} samples per step are not a multiple of samples_per_update = {} ({} would be left "
                      "over); or set train.last_partial = \"keep\" or \"drop\"",
                      samples_, size, rest),
          consistent_divisors(size));
    const int64_t updates = keep() ? ceil_divide(samples_, size) : samples_ / size;
    if (updates == 0)
      return fail_at(
          kSamplesKey,
          fmt::format("a step has {} samples, fewer than one update of {}: last_partial = \"drop\" would "
                      "drop them all",
                      samples_, size),
          {samples_});
    if (train_.updates_per_step && *train_.updates_per_step != updates)
      return fail_at(
          kUpdatesKey,
          fmt::format("{} samples per step in updates of {} make {} updates, not {}; write only one of "
                      "samples_per_update and updates_per_step",
                      samples_, size, updates, *train_.updates_per_step),
          {updates});
    batch_.samples_per_update = std::min(size, samples_);
    batch_.updates_per_step = updates;
    return true;
  }

  /// Divisors of the samples; the one that also agrees with updates_per_step, where there is one.
  std::vector<int64_t> consistent_divisors(int64_t size) const {
    const int64_t updates = train_.updates_per_step.value_or(0);
    if (updates > 0 && samples_ % updates == 0) return {samples_ / updates};
    return nearest_divisors(samples_, size);
  }

  bool from_updates() {
    const int64_t updates = train_.updates_per_step.value_or(1);
    if (updates > samples_)
      return fail_at(kUpdatesKey,
                     fmt::format("{} updates per step, but a step has {} samples", updates, samples_),
                     {samples_});
    if (samples_ % updates != 0 && !keep() && !drop())
      return fail_at(
          kUpdatesKey,
          fmt::format("{} samples per step do not divide into {} equal updates; or set train.last_partial "
                      "= \"keep\" or \"drop\"",
                      samples_, updates),
          nearest_divisors(samples_, updates));
    const int64_t size = keep() ? ceil_divide(samples_, updates) : samples_ / updates;
    const int64_t made = keep() ? ceil_divide(samples_, size) : updates;
    if (made != updates)
      return fail_at(
          kUpdatesKey,
          fmt::format("{} samples in {} updates are {} samples each, and those make only {} updates",
                      samples_, updates, size, made),
          {made});
    batch_.samples_per_update = size;
    batch_.updates_per_step = updates;
    return true;
  }

  const TrainConfig& train_;
  BatchPlan& batch_;
  std::vector<PlanError>& errors_;
  int64_t samples_;
};

bool count_supervised(const Config& c, BatchPlan& b, std::vector<PlanError>& errors) {
  const int64_t size = c.train.samples_per_update.value_or(1), updates = c.train.updates_per_step.value_or(1);
  b.samples_per_prompt = 1;
  if (updates > kMaxSamples / size) {
    errors.push_back({kUpdatesKey,
                      "",
                      fmt::format("{} updates of {} samples are more than {} samples per step", updates, size,
                                  kMaxSamples),
                      {1, kMaxSamples / size}});
    return false;
  }
  b.prompts_per_step = b.samples_per_step = size * updates;
  return true;
}

bool count_sampled(const Config& c, BatchPlan& b, std::vector<PlanError>& errors) {
  b.prompts_per_step = c.rollout.prompts_per_step;
  b.samples_per_prompt = c.rollout.samples_per_prompt;
  if (b.prompts_per_step > kMaxSamples / b.samples_per_prompt) {
    errors.push_back({"rollout.prompts_per_step",
                      "",
                      fmt::format("{} prompts x {} samples per prompt are more than {} samples per step",
                                  b.prompts_per_step, b.samples_per_prompt, kMaxSamples),
                      {kMaxSamples / b.samples_per_prompt}});
    return false;
  }
  b.samples_per_step = b.prompts_per_step * b.samples_per_prompt;
  const int64_t prompts = b.prompts_per_step * (1 + c.rollout.dynamic_sampling_rounds);
  if (c.run.steps <= SampleKey::kMaxPosition / prompts) return true;
  errors.push_back(
      {"run.steps",
       "",
       fmt::format("{} steps of up to {} prompts: there are random numbers for {} prompts of a run",
                   c.run.steps, prompts, SampleKey::kMaxPosition),
       {SampleKey::kMaxPosition / prompts}});
  return false;
}

void count_updates(const Config& c, BatchPlan& b, std::vector<PlanError>& errors) {
  const int64_t epochs = b.epochs_per_step;
  const int64_t per_step = b.updates_per_step * epochs;  // both below 2^31
  if (per_step > kMaxUpdates) {
    errors.push_back({"train.epochs_per_step",
                      "",
                      fmt::format("{} updates x {} epochs per step are more than {} updates",
                                  b.updates_per_step, epochs, kMaxUpdates),
                      {1}});
  } else if (c.run.steps > kMaxUpdates / per_step) {
    errors.push_back({"run.steps",
                      "",
                      fmt::format("{} steps x {} updates per step are more than {} updates", c.run.steps,
                                  per_step, kMaxUpdates),
                      {kMaxUpdates / per_step}});
  } else {
    b.updates_total = c.run.steps * per_step;
  }
}

}  // namespace

std::vector<int64_t> nearest_divisors(int64_t n, int64_t x) {
  int64_t below = 0, above = 0;
  const auto consider = [&](int64_t d) {
    if (d <= x) below = std::max(below, d);
    if (d >= x && (above == 0 || d < above)) above = d;
  };
  for (int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    consider(d);
    consider(n / d);
  }
  std::vector<int64_t> found;
  if (below > 0) found.push_back(below);
  if (above > 0 && above != below) found.push_back(above);
  return found;
}

BatchPlan plan_batch(const Config& c, std::vector<PlanError>& errors) {
  BatchPlan b;
  b.epochs_per_step = c.train.epochs_per_step;
  const bool counted = !algorithm_traits(c.algorithm.name).generates ? count_supervised(c, b, errors)
                                                                     : count_sampled(c, b, errors);
  if (!counted) return b;
  Division(c.train, b, errors).resolve();
  if (b.updates_per_step > 0) count_updates(c, b, errors);
  return b;
}

}  // namespace temper

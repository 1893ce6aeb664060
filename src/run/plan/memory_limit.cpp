#include <algorithm>
#include <numeric>

#include "src/core/check.h"
#include "src/run/plan/draft.h"
#include "src/run/plan/memory.h"

namespace temper {
namespace {

struct Proposal {
  const char* key;
  Json value;
  int64_t peak;
};

using PeakOf = int64_t(const RunPlan&);

/// Looks for the smallest change of one key that fits.
class Search {
 public:
  Search(const PlanDraft& draft, PeakOf* peak_of, int64_t limit)
      : draft_(draft), peak_of_(peak_of), limit_(limit) {}

  std::vector<Proposal> proposals() const {
    const RunPlan& plan = draft_.result.plan;
    std::vector<Proposal> found;
    largest(found, "train.max_tokens_per_microbatch", plan.longest_sequence, plan.max_tokens_per_microbatch,
            1, [](Config& c, int64_t value) { c.train.max_tokens_per_microbatch = value; });
    if (plan.kv_pages > 0)
      largest(found, "rollout.kv_memory", 1, plan.kv_pages, plan.kv_page_bytes,
              [](Config& c, int64_t value) { c.rollout.kv_memory_bytes = value; });
    if (plan.generates)
      largest(found, "rollout.max_prompt_tokens", 1, plan.max_prompt_tokens, 1,
              [](Config& c, int64_t value) { c.rollout.max_prompt_tokens = value; });
    fewer_samples(found);
    if (plan.dtype != DType::bf16) word(found, "run.dtype", "bf16", [](Config& c) { c.run.dtype = "bf16"; });
    const std::string& recompute = draft_.config.train.recompute.granularity;
    for (const char* more : {"selective", "full"})
      if (recompute != more && recompute != "full")
        word(found, "train.recompute.granularity", more,
             [more](Config& c) { c.train.recompute.granularity = more; });
    if (plan.device == Device::cuda && !plan.optimizer_in_host)
      word(found, "train.offload.optimizer", true, [](Config& c) { c.train.offload_optimizer = true; });
    if (plan.device == Device::cuda && plan.needs_reference && !plan.reference_in_host)
      word(found, "roles.reference.offload", true, [](Config& c) { c.roles.reference_offload = true; });
    if (draft_.config.optimizer.state != "bf16")
      word(found, "optimizer.state", "bf16", [](Config& c) { c.optimizer.state = "bf16"; });
    return found;
  }

 private:
  /// Fewer samples of a step, as many as still divide into its updates.
  void fewer_samples(std::vector<Proposal>& found) const {
    const BatchPlan& batch = draft_.result.plan.batch;
    if (!draft_.result.plan.generates)
      return largest(found, "train.samples_per_update", 1, batch.samples_per_update, 1,
                     [](Config& c, int64_t value) { c.train.samples_per_update = value; });
    const TrainConfig& train = draft_.config.train;
    const int64_t samples = train.samples_per_update.value_or(train.updates_per_step.value_or(1));
    const int64_t unit = samples / std::gcd(samples, batch.samples_per_prompt);
    largest(found, "rollout.prompts_per_step", 1, batch.prompts_per_step / unit, unit,
            [](Config& c, int64_t value) { c.rollout.prompts_per_step = value; });
  }

  /// The peak of this config, or 0 when it is illegal or does not fit.
  int64_t fitting_peak(const Config& config) const {
    const PlanResult result = try_plan(config, draft_.result.plan.num_ranks, draft_.facts);
    const int64_t peak = peak_of_(result.plan);
    return result.errors.empty() && peak <= limit_ ? peak : 0;
  }

  /// Another value of one key, where it fits.
  template <class Set>
  void word(std::vector<Proposal>& found, const char* key, const Json& value, const Set& set) const {
    Config config = draft_.config;
    set(config);
    if (const int64_t peak = fitting_peak(config)) found.push_back({key, value, peak});
  }

  /// Bisects [low, high) x unit for the largest value that fits; memory grows with each of these keys.
  template <class Set>
  void largest(std::vector<Proposal>& found, const char* key, int64_t low, int64_t high, int64_t unit,
               const Set& set) const {
    Proposal best{key, nullptr, 0};
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      Config config = draft_.config;
      const int64_t value = saturating_multiply(middle, unit);
      set(config, value);
      const PlanResult result = try_plan(config, draft_.result.plan.num_ranks, draft_.facts);
      const int64_t peak = peak_of_(result.plan);
      if (result.errors.empty() && peak <= limit_) best = {key, value, peak};
      // Too small to be legal: look higher. Legal but too large: look lower.
      const bool lower = result.errors.empty() && peak > limit_;
      (lower ? high : low) = lower ? middle : middle + 1;
    }
    if (best.peak > 0) found.push_back(best);
  }

  const PlanDraft& draft_;
  PeakOf* peak_of_;
  int64_t limit_;
};

/// The peak with the smallest budget and cache that hold the longest sequence.
int64_t least_peak(const PlanDraft& draft, PeakOf* peak_of) {
  const RunPlan& plan = draft.result.plan;
  Config config = draft.config;
  config.train.max_tokens_per_microbatch = plan.longest_sequence;
  config.rollout.max_running_sequences = 1;  // an automatic cache then holds one sequence
  config.rollout.kv_memory_bytes.reset();
  return peak_of(try_plan(config, plan.num_ranks, draft.facts).plan);
}

void hold_to(PlanDraft& draft, PeakOf* peak_of, const MemoryLimit& limit) {
  const int64_t peak = peak_of(draft.result.plan);
  if (limit.bytes == 0 || peak <= limit.bytes) return;
  const std::vector<Proposal> found = Search(draft, peak_of, limit.bytes).proposals();
  std::string message =
      fmt::format("a rank needs {}, it has {} ({})", gib_text(peak), gib_text(limit.bytes), limit.of);
  for (const Proposal& p : found)
    message += fmt::format("; {} = {} needs {}", p.key, p.value.dump(), gib_text(p.peak));
  if (found.empty())
    message += fmt::format(
        "; no single key makes it fit: with the least train.max_tokens_per_microbatch and "
        "rollout.kv_memory it needs {}. Lower both, use more ranks, a shorter context or a "
        "smaller model",
        gib_text(least_peak(draft, peak_of)));
  const char* key = found.empty() ? "train.max_tokens_per_microbatch" : found.front().key;
  std::vector<Json> legal;
  for (const Proposal& p : found)
    if (p.key == key) legal.push_back(p.value);
  draft.error(key, message, legal);
}

}  // namespace

void plan_memory_limits(PlanDraft& draft, const MemoryLimits& limits) {
  hold_to(draft, peak_bytes, limits.device);
  hold_to(draft, host_peak_bytes, limits.host);
}

}  // namespace temper

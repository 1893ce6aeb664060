#include <algorithm>
#include <numeric>

#include "src/core/check.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/rules.h"

namespace temper {
namespace {

struct Proposal {
  std::string key;
  Json value;
  int64_t peak;
};

using PeakOf = int64_t(const RunPlan&);

std::string key_of(const RolePlan& role, const char* key) {
  return fmt::format("roles.{}.{}", role.name(), key);
}

/// `now` and the larger numbers that divide the ranks of the trainer.
std::vector<int64_t> more_of(const RunPlan& plan, int64_t now) {
  std::vector<int64_t> numbers{now};
  const auto ranks = std::ssize(plan.trainer().ranks);
  for (int64_t n = now + 1; n <= ranks; ++n)
    if (ranks % n == 0) numbers.push_back(n);
  return numbers;
}

/// Looks for the smallest change of one key that fits.
class Search {
 public:
  Search(const Config& config, const RunPlan& plan, const RunModels& models, PeakOf* peak_of, int64_t limit)
      : plan_(plan), models_(models), config_(config), peak_of_(peak_of), limit_(limit) {
    // What "auto" has chosen stays chosen.
    if (plan.optimizer_in_host) config_.train.offload_optimizer = true;
    for (const RolePlan& role : plan.roles)
      if (role.in_host) config_.roles.of(role.name()).offload = true;
  }

  std::vector<Proposal> proposals() const {
    const RunPlan& plan = plan_;
    std::vector<Proposal> found;
    largest(found, "train.max_tokens_per_microbatch", plan.least_budget(), plan.max_tokens_per_microbatch, 1,
            [](Config& c, int64_t value) { c.train.max_tokens_per_microbatch = value; });
    if (plan.cache.pages > 0)
      largest(found, "rollout.kv_memory", 1, plan.cache.pages, plan.cache.page_bytes,
              [](Config& c, int64_t value) { c.rollout.kv_memory_bytes = value; });
    if (plan.generates)
      largest(found, "rollout.max_prompt_tokens", 1, plan.lengths.max_prompt, 1,
              [](Config& c, int64_t value) { c.rollout.max_prompt_tokens = value; });
    fewer_samples(found);
    if (plan.cache.state_bytes > 0)
      largest(found, "rollout.max_running_sequences", 1, plan.cache.running_sequences, 1,
              [](Config& c, int64_t value) { c.rollout.max_running_sequences = value; });
    if (plan.dtype != DType::bf16) word(found, "run.dtype", "bf16", [](Config& c) { c.run.dtype = "bf16"; });
    const std::string& recompute = config_.train.recompute.granularity;
    for (const char* more : {"selective", "full"})
      if (recompute != more && recompute != "full")
        word(found, "train.recompute.granularity", more,
             [more](Config& c) { c.train.recompute.granularity = more; });
    if (plan.device == Device::cuda && !plan.optimizer_in_host)
      word(found, "train.offload.optimizer", true, [](Config& c) { c.train.offload_optimizer = true; });
    for (const RolePlan& role : plan.roles)
      if (plan.device == Device::cuda && role.traits->keys.has(RoleKey::offload) && !role.in_host)
        word(found, key_of(role, "offload"), true,
             [&](Config& c) { c.roles.of(role.name()).offload = true; });
    const RolePlan& trainer = plan.trainer();
    for (const int64_t zero : {2, 3})
      if (trainer.replicas() > 1 && trainer.zero < zero)
        word(found, key_of(trainer, "zero"), zero, [zero](Config& c) { c.roles.lead().zero = zero; });
    if (config_.optimizer.state != "bf16")
      word(found, "optimizer.state", "bf16", [](Config& c) { c.optimizer.state = "bf16"; });
    layouts(found);
    return found;
  }

  /// What costs time alone, and the fewest more ranks that share the model, where these fit together: as
  /// words of a command line, and the peak; empty where they do not.
  std::string together() const {
    Config config = config_;
    std::string words;
    if (config.train.recompute.granularity != "full") words += "train.recompute.granularity=full ";
    config.train.recompute.granularity = "full";
    if (plan_.device == Device::cuda) {
      if (!plan_.optimizer_in_host) words += "train.offload.optimizer=true ";
      config.train.offload_optimizer = true;
    }
    const RolePlan& trainer = plan_.trainer();
    std::vector<std::pair<int64_t, int64_t>> layouts;
    for (const int64_t tp : more_of(plan_, trainer.tp()))
      for (const int64_t pp : more_of(plan_, trainer.pp())) layouts.emplace_back(tp, pp);
    std::stable_sort(layouts.begin(), layouts.end(),
                     [](const auto& a, const auto& b) { return a.first * a.second < b.first * b.second; });
    for (const auto& [tp, pp] : layouts) {
      config.roles.lead().tp = tp, config.roles.lead().pp = pp;
      const int64_t peak = fitting_peak(config);
      if (peak == 0) continue;
      if (tp != trainer.tp()) words += fmt::format("{}={} ", key_of(trainer, "tp"), tp);
      if (pp != trainer.pp()) words += fmt::format("{}={} ", key_of(trainer, "pp"), pp);
      return fmt::format("{}needs {}", words, gib_text(peak));
    }
    return "";
  }

 private:
  /// The fewest more ranks that share the model.
  void layouts(std::vector<Proposal>& found) const {
    const auto fewest = [&](const RolePlan& role, const char* key, int64_t now,
                            std::optional<int64_t> RoleSection::*member) {
      const size_t before = found.size();
      for (const int64_t n : more_of(plan_, now))
        if (n > now && found.size() == before)
          word(found, key_of(role, key), n, [&](Config& c) { c.roles.of(role.name()).*member = n; });
    };
    for (const RolePlan* role : {&plan_.trainer(), plan_.generator()})
      if (role) {
        fewest(*role, "tp", role->tp(), &RoleSection::tp);
        fewest(*role, "pp", role->pp(), &RoleSection::pp);
      }
  }

  /// Fewer samples of a step, as many as still divide into its updates.
  void fewer_samples(std::vector<Proposal>& found) const {
    const BatchPlan& batch = plan_.batch;
    if (!plan_.generates)
      return largest(found, "train.samples_per_update", 1, batch.samples_per_update, 1,
                     [](Config& c, int64_t value) { c.train.samples_per_update = value; });
    const TrainConfig& train = config_.train;
    const int64_t samples = train.samples_per_update.value_or(train.updates_per_step.value_or(1));
    const int64_t unit = samples / std::gcd(samples, batch.samples_per_prompt);
    largest(found, "rollout.prompts_per_step", 1, batch.prompts_per_step / unit, unit,
            [](Config& c, int64_t value) { c.rollout.prompts_per_step = value; });
  }

  /// The peak of this config, or 0 when it is illegal or does not fit.
  int64_t fitting_peak(const Config& config) const {
    const PlanResult result = try_plan(config, plan_.num_ranks, models_);
    const int64_t peak = peak_of_(result.plan);
    return result.errors.empty() && peak <= limit_ ? peak : 0;
  }

  /// Another value of one key, where it fits.
  template <class Set>
  void word(std::vector<Proposal>& found, const std::string& key, const Json& value, const Set& set) const {
    Config config = config_;
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
      Config config = config_;
      const int64_t value = saturating_multiply(middle, unit);
      set(config, value);
      const PlanResult result = try_plan(config, plan_.num_ranks, models_);
      const int64_t peak = peak_of_(result.plan);
      if (result.errors.empty() && peak <= limit_) best = {key, value, peak};
      // Too small to be legal: look higher. Legal but too large: look lower.
      const bool lower = result.errors.empty() && peak > limit_;
      (lower ? high : low) = lower ? middle : middle + 1;
    }
    if (best.peak > 0) found.push_back(best);
  }

  const RunPlan& plan_;
  const RunModels& models_;
  Config config_;
  PeakOf* peak_of_;
  int64_t limit_;
};

/// The peak with the smallest budget and cache that hold the longest sequence.
int64_t least_peak(Config config, const RunPlan& plan, const RunModels& models, PeakOf* peak_of) {
  config.train.max_tokens_per_microbatch = plan.least_budget();
  config.rollout.max_running_sequences = 1;  // an automatic cache then holds one sequence
  config.rollout.kv_memory_bytes.reset();
  return peak_of(try_plan(config, plan.num_ranks, models).plan);
}

void hold_to(const MemoryLimit& limit, PeakOf* peak_of, const Config& config, const RunPlan& plan,
             const RunModels& models, Findings& findings) {
  const int64_t peak = peak_of(plan);
  if (limit.bytes == 0 || peak <= limit.bytes) return;
  const Search search(config, plan, models, peak_of, limit.bytes);
  const std::vector<Proposal> found = search.proposals();
  const std::string together = found.empty() ? search.together() : "";
  std::string message =
      fmt::format("a rank needs {}, it has {} ({})", gib_text(peak), gib_text(limit.bytes), limit.of);
  for (const Proposal& p : found)
    message += fmt::format("; {} = {} needs {}", p.key, p.value.dump(), gib_text(p.peak));
  if (!together.empty())
    message += fmt::format("; no single key makes it fit, these do together: {}", together);
  else if (found.empty())
    message += fmt::format(
        "; no single key makes it fit: with the least train.max_tokens_per_microbatch and "
        "rollout.kv_memory it needs {}. Lower both, use more ranks, a shorter context or a "
        "smaller model",
        gib_text(least_peak(config, plan, models, peak_of)));
  const std::string key = found.empty() ? "train.max_tokens_per_microbatch" : found.front().key;
  std::vector<Json> legal;
  for (const Proposal& p : found)
    if (p.key == key) legal.push_back(p.value);
  findings.error(key, message, legal);
}

}  // namespace

void check_memory(const Config& config, const RunPlan& plan, const RunModels& models,
                  const MemoryLimits& limits, Findings& found) {
  hold_to(limits.device, peak_bytes, config, plan, models, found);
  hold_to(limits.host, host_peak_bytes, config, plan, models, found);
}

}  // namespace temper

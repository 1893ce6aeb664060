#include "src/run/roles/train_record.h"

#include <map>

namespace temper {

void record_rollout(const RoleParts& parts, const StepNote& note) {
  const RolePlan* rollout = parts.task.plan.generator();
  if (!rollout || parts.task.replay()) return;
  Journal& journal = parts.journal;
  const auto ranks = static_cast<double>(rollout->dp());
  const auto share_of_max = [&](const char* sum, const char* max) {
    const double all = journal.value(sum), most = journal.value(max) * ranks;
    return most > 0 ? all / most : 1.0;
  };
  journal.set("perf/rollout_idle_share", 1 - share_of_max("timing_s/gen_all_ranks", "timing_s/gen"));
  journal.set("perf/rollout_balance", share_of_max("perf/rollout_rows", "perf/rollout_rows_max"));
  if (const double rows = journal.value("rollout/turn_rows"); rows > 0) {
    journal.set("rollout/turn_found_share", journal.value("rollout/turn_rows_found") / rows);
    journal.set("rollout/turn_again_share", journal.value("rollout/turn_rows_again") / rows);
  }
  if (parts.task.config().rollout.dynamic_sampling_rounds == 0) return;
  double score = 0;
  for (const auto& [position, reward] : note.replaced) score += reward;
  journal.set("rollout/prompts_replaced", static_cast<double>(note.replaced.size()));
  if (!note.replaced.empty())
    journal.set("rollout/replaced_score", score / static_cast<double>(note.replaced.size()));
}

void record_rollouts(const RoleParts& parts, std::span<const Group> groups, int64_t step) {
  Config config = parts.task.config();
  if (parts.task.rollouts_only) config.rollout.dump_every = 1;  // they are all that the run is for
  parts.journal.record_rollouts(groups, step, config);
}

void record_updates(Journal& journal, const std::vector<UpdateStats>& updates, bool samples) {
  const std::string prefix = samples ? "actor/" : "train/";
  std::map<std::string, double> mean;
  int64_t tokens = 0;
  double flops = 0;
  for (const UpdateStats& u : updates) {
    for (const auto& [name, value] : u.metrics) mean[name] += value;
    mean[prefix + "grad_norm"] += u.grad_norm;
    mean[prefix + "lr"] += u.lr;
    mean["batch/fill"] += u.fill;
    mean["batch/imbalance"] += u.imbalance;
    mean["batch/num_microbatches"] += static_cast<double>(u.num_microbatches);
    tokens += u.num_tokens;
    flops += u.flops;
  }
  for (auto& [name, value] : mean) value /= static_cast<double>(updates.size());
  if (samples) mean["actor/rollout_logprob_diff_max"] = updates.front().logprob_diff_max;
  // As log-probs, routes are compared under the weights that the step began with.
  const Metrics& first = updates.front().metrics;
  if (const auto at = first.find("moe/routing_mismatch"); at != first.end()) mean[at->first] = at->second;
  journal.add(mean);
  journal.set("perf/total_num_tokens", static_cast<double>(tokens));
  journal.set("perf/update_tflop", flops * 1e-12);
}

void stop_at_defect(const RoleParts& parts, int64_t step, const std::string& defect,
                    std::span<const Group> groups) {
  parts.journal.write_groups("nonfinite", groups, step);
  parts.all_ranks().barrier("dump of the non-finite step written by rank 0");
  fail(Exit::numerics,
       {.what = "training stopped before the update: " + defect,
        .where = fmt::format("step {}", step),
        .why = "weights and optimizer state are those before this update; the rollouts of the step "
               "were written to nonfinite/ in the run folder",
        .fix = "replay the dump with `temper train CONFIG --replay FILE`; lower optimizer.lr, or look "
               "for extreme rewards"});
}

void stop_at_mismatch(const RoleParts& parts, int64_t step, const std::string& first,
                      std::span<const Group> groups) {
  parts.journal.write_groups("mismatch", groups, step);
  parts.all_ranks().barrier("dump of the step whose log-probs differ written by rank 0");
  fail(Exit::numerics,
       {.what = "a log-prob is another in training than in the rollout",
        .where = fmt::format("step {}", step),
        .why = first,
        .fix = "the rollouts of the step were written to mismatch/ in the run folder; go on from "
               "the last checkpoint on other nodes, or with algorithm.mismatch = \"warn\""});
}

}  // namespace temper

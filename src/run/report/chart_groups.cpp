#include "src/run/report/chart_groups.h"

#include <algorithm>
#include <array>
#include <set>

#include "src/run/report/metric_docs.h"

namespace temper {
namespace {

struct Row {
  std::string_view group, names, unit;  // names as in metric_docs.h
};
constexpr std::string_view kReward = "Reward and accuracy", kLoss = "Loss, entropy, divergence",
                           kLengths = "Lengths", kOptimizer = "Gradient and learning rate",
                           kSpeed = "Throughput", kMemory = "Memory", kOther = "Other metrics";
constexpr std::array kRows{
    Row{kReward, "val/<set>/score/mean", "score"},
    Row{kReward, "val/<set>/pass@<k>", "share of prompts"},
    Row{kReward, "critic/score/mean", "score"},
    Row{kReward, "critic/rewards/mean", "reward"},
    Row{kReward, "reward/<part>/mean", "reward"},
    Row{kReward, "reward/<part>/<part>/mean", "reward"},
    Row{kReward, "rollout/no_signal_share", "share of groups"},
    Row{kReward, "reward/excluded", "responses"},
    Row{kReward, "reward/signal_lost", "groups"},
    Row{kLoss, "train/loss", "nats a token"},
    Row{kLoss, "val/<set>/loss", "nats a token"},
    Row{kLoss, "val/<set>/ppl", "perplexity"},
    Row{kLoss, "actor/{loss,pg_loss}", "loss"},
    Row{kLoss, "actor/entropy", "nats a token"},
    Row{kLoss, "actor/{kl_loss,ppo_kl}", "nats a token"},
    Row{kLoss, "actor/{pg_clipfrac,pg_clipfrac_lower,kl_clipfrac,tis_clipfrac}", "share of tokens"},
    Row{kLoss, "actor/tis_weight", "weight"},
    Row{kLoss, "actor/rollout_logprob_diff_max", "nats"},
    Row{kLoss, "policy/off_policy_share", "share of tokens"},
    Row{kLoss, "policy/rejected_share", "share of responses"},
    Row{kLoss, "rollout/teacher_kl", "nats a token"},
    Row{kLengths, "response_length/mean", "tokens"},
    Row{kLengths, "response_length/clip_ratio", "share of responses"},
    Row{kLengths, "prompt_length/mean", "tokens"},
    Row{kLengths, "val/<set>/response_length/mean", "tokens"},
    Row{kLengths, "val/<set>/response_length/clip_ratio", "share of responses"},
    Row{kOptimizer, "{actor,train}/grad_norm", "norm"},
    Row{kOptimizer, "{actor,train}/lr", "learning rate"},
    Row{kSpeed, "perf/throughput", "tokens/s of a rank"},
    Row{kSpeed, "perf/time_per_step", "seconds"},
    Row{kSpeed, "perf/mfu", "share of peak"},
    Row{kSpeed, "perf/total_num_tokens", "tokens"},
    Row{kSpeed, "perf/rollout_idle_share", "share of time"},
    Row{kSpeed, "rollout/{turn_found_share,turn_again_share}", "share of rows"},
    Row{kSpeed, "batch/fill", "share of the limit"},
    Row{kMemory, "perf/cpu_memory_used_gb", "GiB"},
    Row{kMemory, "perf/peak_gb/<phase>/{device,host}", "GiB"},
    Row{kOther, "{prompt_length,response_length}/{max,min}", "tokens"},
    Row{kOther, "rollout/{rows_prefilled,rows_shared,rows_generated,rows_recomputed}", "token rows"},
    Row{kOther, "rollout/{turn_rows,turn_rows_found,turn_rows_again}", "token rows"},
    Row{kOther, "policy/{version,lag_max}", "steps"},
    Row{kOther, "perf/update_tflop", "TFLOP"},
    Row{kOther, "perf/load_weights_gb_per_s", "GB/s"},
};

}  // namespace

std::vector<ChartGroup> chart_groups(const std::vector<std::string>& keys) {
  std::vector<ChartGroup> groups;
  std::set<std::string> placed;
  const auto add = [&](std::string_view group, const std::string& key, std::string_view unit) {
    if (key.starts_with("timing_s/") || !placed.insert(key).second) return;
    if (groups.empty() || groups.back().title != group) groups.push_back({std::string(group), {}});
    groups.back().metrics.push_back({key, std::string(unit)});
  };
  for (const Row& row : kRows)
    for (const std::string& key : keys)
      if (describes({row.names, ""}, key)) add(row.group, key, row.unit);
  for (const std::string& key : keys) add(kOther, key, "");
  return groups;
}

std::string_view metric_help(const std::string& key) {
  for (const MetricDoc& doc : metric_docs())
    if (describes(doc, key)) return doc.help;
  return "";
}

}  // namespace temper

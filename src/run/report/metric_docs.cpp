#include "src/run/report/metric_docs.h"

#include <algorithm>
#include <array>

namespace temper {
namespace {

constexpr std::array kMetrics{
    MetricDoc{"step", "training step, counted from 1"},
    MetricDoc{"actor/loss", "pg_loss + kl_coef x kl_loss - entropy_coef x entropy"},
    MetricDoc{"actor/pg_loss", "clipped policy gradient loss"},
    MetricDoc{"actor/kl_loss", "divergence from the reference, without its coefficient"},
    MetricDoc{"actor/kl_clipfrac", "share of tokens whose divergence was bounded"},
    MetricDoc{"actor/entropy", "entropy of the policy at sampled tokens"},
    MetricDoc{"actor/{pg_clipfrac,pg_clipfrac_lower}", "share of tokens whose ratio was clipped"},
    MetricDoc{"actor/ppo_kl", "mean log-prob at the step's start minus now"},
    MetricDoc{"actor/{tis_weight,tis_clipfrac}",
              "weight of tokens of older weights, and the share at a bound"},
    MetricDoc{"actor/tis_ess", "effective sample size by these weights, as a share of the tokens"},
    MetricDoc{"actor/rollout_logprob_diff_max",
              "largest difference of trainer and rollout; on policy exactly 0"},
    MetricDoc{"{actor,train}/grad_norm", "norm of the gradient before clipping"},
    MetricDoc{"{actor,train}/lr", "learning rate"},
    MetricDoc{"train/loss", "cross entropy of the responses (sft)"},
    MetricDoc{"critic/score/{mean,max,min}", "weighted sum of the task rewards of a response"},
    MetricDoc{"critic/rewards/{mean,max,min}", "score with shaping, which advantages use"},
    MetricDoc{"critic/advantages/{mean,max,min}", "advantage, over response tokens"},
    MetricDoc{"reward/<part>/mean", "each function of reward.functions, unweighted"},
    MetricDoc{"reward/<part>/<part>/mean", "each part that a reward program reports"},
    MetricDoc{"reward/parts_left_out",
              "names of parts beyond the 64 that most responses have, or the first 128 of a run"},
    MetricDoc{"reward/excluded", "responses without a reward"},
    MetricDoc{"reward/signal_lost",
              "groups whose rewards are too far apart for a variance: no advantage comes of them"},
    MetricDoc{"response_length/{mean,max,min}", "tokens of a response"},
    MetricDoc{"response_length/clip_ratio", "share of responses cut at rollout.max_new_tokens"},
    MetricDoc{"prompt_length/{mean,max,min}", "tokens of a prompt"},
    MetricDoc{"rollout/no_signal_share", "share of groups whose rewards are all alike: they train nothing"},
    MetricDoc{"rollout/rounds", "rounds of replaced prompts (dynamic sampling)"},
    MetricDoc{"rollout/{prompts_replaced,replaced_score}",
              "prompts that were replaced, and their mean score"},
    MetricDoc{"rollout/prompts_unfinished", "prompts that go on in the next step (tokens_per_step)"},
    MetricDoc{"rollout/preemptions", "sequences that gave their cache back and were computed again"},
    MetricDoc{"rollout/{rows_prefilled,rows_shared,rows_generated,rows_recomputed}",
              "token rows: of prompts, of prompts shared by samples, sampled, computed again"},
    MetricDoc{"rollout/sessions_{done,no_start,died,late,nonsense,no_request,no_reward,limit}",
              "sessions of programs, by how they ended"},
    MetricDoc{"rollout/sessions_diverged", "sessions whose program asked otherwise than before a stop"},
    MetricDoc{"rollout/{turn_rows,turn_rows_found,turn_rows_again}",
              "rows of the prompts of turns; found in pages; computed again though a turn before had them"},
    MetricDoc{"rollout/{turn_found_share,turn_again_share}",
              "the latter two over the first; ample pages: nothing is computed again"},
    MetricDoc{"rollout/sessions_waited_s", "seconds that sessions waited for a program to be started"},
    MetricDoc{"rollout/{session_retries,program_restarts}", "failures that were followed by another try"},
    MetricDoc{"rollout/requests_refused", "requests of programs that got an error"},
    MetricDoc{"rollout/run_sampling_held/<key>", "requests whose <key> gave way to the run's"},
    MetricDoc{"policy/version", "step of the newest weights"},
    MetricDoc{"policy/lag_max", "largest age of weights that sampled a token, in steps"},
    MetricDoc{"policy/off_policy_share", "share of tokens of older weights"},
    MetricDoc{"rollout/teacher_kl", "mean log-prob of the policy minus that of the teacher, over tokens"},
    MetricDoc{"policy/rejected_share", "share of responses that algorithm.reject_... leaves out"},
    MetricDoc{"batch/fill", "tokens of micro-batches over their limit"},
    MetricDoc{"moe/load_max",
              "rows of the busiest expert of any layer over the mean of its layer; 1 is even"},
    MetricDoc{"moe/load_min", "rows of the idlest expert of any layer over the mean of its layer"},
    MetricDoc{"moe/experts_idle", "experts of all layers that got no token of the update"},
    MetricDoc{
        "moe/entropy",
        "entropy of the routers in nats, mean over tokens and layers; even: log of the number of experts"},
    MetricDoc{
        "moe/routing_mismatch",
        "recorded experts of tokens that the trainer's routers did not choose, in the first update of a "
        "step; exactly 0 on policy (moe.record_routes, moe.replay)"},
    MetricDoc{"moe/{aux_loss,z_loss}",
              "what the losses of moe.aux_loss add to the loss of an update, over all layers"},
    MetricDoc{"batch/imbalance", "work of the busiest rank over the mean"},
    MetricDoc{"batch/num_microbatches", "micro-batches of an update"},
    MetricDoc{"val/<set>/score/{mean,max,min}", "score of validation responses"},
    MetricDoc{"val/<set>/response_length/{mean,clip_ratio}",
              "tokens of validation responses; share that was cut"},
    MetricDoc{"val/<set>/loss", "cross entropy of held-out responses, nats a token (sft)"},
    MetricDoc{"val/<set>/ppl", "their perplexity: e to the power of that loss"},
    MetricDoc{"val/<set>/avg@<n>", "mean over prompts of the mean score of their n responses"},
    MetricDoc{"val/<set>/pass@<k>", "chance that one of k responses to a prompt scores at least 1, unbiased"},
    MetricDoc{"val/<set>/maj@<n>", "share of prompts whose most frequent answer scores at least 1"},
    MetricDoc{"domain/<domain>/{score,response_length}/{mean,max,min,clip_ratio}",
              "score and length of the rollouts of a domain (data.domain_key)"},
    MetricDoc{"domain/<domain>/reward/<part>/mean", "each reward function by domain"},
    MetricDoc{"domain/<domain>/responses", "responses of a domain"},
    MetricDoc{"domain/left_out", "domains of a step that have no metrics: beyond 64 of it, 128 of a run"},
    MetricDoc{"val/<set>/domain/<domain>/{score,response_length}/{mean,max,min,clip_ratio}",
              "the same of validation responses"},
    MetricDoc{"val/<set>/domain/<domain>/{responses,reward}", "the same, reward/<part>/mean"},
    MetricDoc{"val/<set>/domain/left_out", "domains of a validation that have none: beyond 64"},
    MetricDoc{
        "timing_s/{step,gen,gen_all_ranks,reward,ref,teacher,adv,old_log_prob,update_actor,sync_weights,"
        "save_checkpoint,export_hf}",
        "seconds of the step and of its phases, the slowest rank's; what comes after a step (its weights go "
        "out, it is saved) is a part of the next one"},
    MetricDoc{"perf/total_num_tokens", "tokens that were trained on, prompts included"},
    MetricDoc{"perf/throughput", "tokens that were trained on, a second and rank"},
    MetricDoc{"perf/time_per_step", "seconds"},
    MetricDoc{"perf/update_tflop", "10^12 floating point operations of the updates"},
    MetricDoc{"perf/comm_bytes/{tp,cp,dp,pp,ep}",
              "bytes that trainer ranks sent each other in the updates, by axis"},
    MetricDoc{"perf/mfu", "those over what the GPUs could do in that time"},
    MetricDoc{"perf/cpu_memory_used_gb", "largest host memory of a rank so far, GiB"},
    MetricDoc{"perf/load_weights_gb_per_s", "10^9 bytes of weights a second, in the first step of a start"},
    MetricDoc{"perf/peak_gb/<phase>/{host,device}", "most memory that a rank held in a phase, GiB"},
    MetricDoc{"perf/{rollout_rows,rollout_rows_max}", "rows of generation: all ranks, the busiest rank"},
    MetricDoc{"perf/rollout_balance", "mean work of rollout ranks over the busiest one's"},
    MetricDoc{"perf/rollout_idle_share", "share of time that rollout ranks waited for the last sequences"},
    MetricDoc{"perf/{reward_calls,reward_late,reward_died,reward_nonsense,reward_restarts}",
              "what reward programs were asked, and how they failed"},
    MetricDoc{"perf/{tracker_late,tracker_died,tracker_nonsense,tracker_behind}",
              "how the program of log.command failed, and steps that it lacks"},
};

bool matches(std::string_view pattern, std::string_view key) {
  if (pattern.empty() || key.empty()) return pattern.empty() && key.empty();
  if (pattern.front() == '<') {
    const std::string_view rest = pattern.substr(pattern.find('>') + 1);
    return matches(rest, key.substr(std::min(key.find('/'), key.size())));
  }
  if (pattern.front() != '{')
    return pattern.front() == key.front() && matches(pattern.substr(1), key.substr(1));
  const size_t end = pattern.find('}');
  for (std::string_view words = pattern.substr(1, end - 1);; words.remove_prefix(words.find(',') + 1)) {
    const std::string_view word = words.substr(0, words.find(','));
    if (key.starts_with(word) && matches(pattern.substr(end + 1), key.substr(word.size()))) return true;
    if (word.size() == words.size()) return false;
  }
}

}  // namespace

std::span<const MetricDoc> metric_docs() { return kMetrics; }

bool describes(const MetricDoc& doc, std::string_view key) { return matches(doc.name, key); }

}  // namespace temper

#include <array>

#include "src/config/methods.h"
#include "src/config/section.h"

namespace temper {
namespace {

constexpr std::array<Words, 3> kLastPartial{"error", "keep", "drop"};
constexpr std::array<Words, 3> kGranularities{"none", "selective", "full"};
constexpr std::array<Words, 2> kRecomputeMethods{"uniform", "block"};
constexpr std::array<Words, 4> kSchedules{"constant", "linear", "cosine", "wsd"};
constexpr std::array<Words, 2> kMomentFormats{"fp32", "bf16"};
constexpr std::array<Words, 3> kMasterFormats{"auto", "fp32", "remainder"};

/// What makes an advantage and a loss, and holds the ratio.
void policy_fields(AlgorithmConfig& c, Section f) {
  f("name", c.name,
    {.help = "a method: the defaults of other keys; sft: supervised fine-tuning; see `temper help algorithm`",
     .choices = kAlgorithmNames});
  f("advantage", c.advantage,
    {.help = "how rewards become advantages, see `temper help algorithm`", .choices = kAdvantageNames});
  f("advantage_std", c.advantage_std,
    {.help = "standard deviation that advantages grpo and pass@k are divided by: that of the rewards of the "
             "group, of the step, or none",
     .choices = kAdvantageScales});
  f("loss", c.loss, {.help = "loss of a token, see `temper help algorithm`", .choices = kLossNames});
  f("clip_low", c.clip_low, {.help = "the ratio is clipped below 1 - clip_low", .range = kNotNegative});
  f("clip_high", c.clip_high, {.help = "the ratio is clipped above 1 + clip_high", .range = kNotNegative});
  f("dual_clip", c.dual_clip,
    {.help = "largest ratio of a token with a negative advantage, above 1; 0: off", .range = kNotNegative});
}

/// Tokens that other weights sampled.
void importance_fields(AlgorithmConfig& c, Section f) {
  f("tis_cap", c.tis_cap,
    {.help =
         "tokens that older weights sampled: the ratio starts at the step's first weights and the loss is "
         "multiplied by min(first / sampling probability, this); 0: the ratio starts at the sampling weights",
     .range = kNotNegative});
  f("importance", c.importance,
    {.help = "whose probabilities that weight compares: those of the token, of its whole response (their "
             "product), or their geometric mean",
     .choices = kImportanceLevels});
  f("importance_form", c.importance_form,
    {.help = "a weight outside its bounds: is moved to the bound, or is 0 (IcePop)",
     .choices = kImportanceForms});
  f("importance_bounds", c.importance_bounds,
    {.help = "lowest and highest importance weight; []: 0 and algorithm.tis_cap", .range = kNotNegative});
  f("reject_mean_k3", c.reject_mean_k3,
    {.help = "responses of older weights are not trained where the mean of w - 1 - ln w, of their tokens' "
             "weights, is above this; 0: off",
     .range = kNotNegative});
  f("reject_token_below", c.reject_token_below,
    {.help =
         "responses of older weights are not trained where one token's weight is below this (1e-4); 0: off",
     .range = kShare});
  f("mismatch", c.mismatch,
    {.help = "a log-prob that is another where the token is trained than where the same weights sampled it",
     .choices = kMismatchRules});
}

}  // namespace

void algorithm_fields(AlgorithmConfig& c, Section f) {
  policy_fields(c, f);
  f("kl_coef", c.kl_coef,
    {.help = "weight of the KL to the reference policy; 0: no reference policy is kept",
     .range = kNotNegative});
  f("kl_in", c.kl_in,
    {.help = "where the KL goes: a term of the loss, or taken off the reward", .choices = kKlPlaces});
  f("kl_estimator", c.kl_estimator, {.help = "estimator of the KL per token", .choices = kKlEstimators});
  f("aggregation", c.aggregation,
    {.help = "how token losses of an update become one number", .choices = kAggregations});
  f("entropy_coef", c.entropy_coef, {.help = "weight of the entropy bonus", .range = {-kHuge, kHuge}});
  f("advantage_eps", c.advantage_eps,
    {.help = "added to the standard deviation of a group's rewards", .range = kNotNegative});
  f("gamma", c.gamma, {.help = "advantage reinforce++: discount of later token rewards", .range = kShare});
  f("single_group", c.single_group,
    {.help = "advantage of a group of one sample: left out, 0, or the reward itself",
     .choices = kSingleGroupRules});
  f("mask_truncated", c.mask_truncated,
    {.help = "responses that were cut at rollout.max_new_tokens are not trained; their rewards count in the "
             "statistics of their group"});
  f("ratio_clamp", c.ratio_clamp,
    {.help = "largest |log ratio| before exp, also in the KL of kind k3; 0: off", .range = {0, 700}});
  f("k3_clamp", c.k3_clamp,
    {.help = "the KL of kind k3 is at most 10 a token (verl's low_var_kl), without a gradient beyond"});
  f("teacher_coef", c.teacher_coef,
    {.help = "with roles.teacher.path: each token's advantage loses this times log-prob when sampled - "
             "log-prob of the teacher; 0: off",
     .range = kNotNegative});
  importance_fields(c, f);
}

void lora_fields(LoraConfig& c, Section f) {
  f("rank", c.rank,
    {.help = "rank of the low-rank adapters that are trained beside the linear layers, which then stay as "
             "they are; 0: that of lora.path, or without a path no adapters",
     .range = {0, 4096},
     .example = 32});
  f("alpha", c.alpha,
    {.help = "what adapters add is multiplied by alpha / rank",
     .range = kPositive,
     .absent = "auto",
     .absent_means = "that of lora.path, else twice the rank",
     .example = 64});
  f("targets", c.targets,
    {.help =
         "modules that get adapters, as Hugging Face calls them: q_proj, k_proj, v_proj, o_proj, gate_proj, "
         "up_proj, down_proj; of a model with experts those of attention alone; []: those of lora.path, "
         "else all of them"});
  f("rslora", c.rslora,
    {.help = "multiply by alpha / sqrt(rank) instead",
     .absent = "auto",
     .absent_means = "as lora.path says, else false",
     .example = true});
  f("path", c.path,
    {.help = "PEFT folder whose adapters the run begins with, and compares with where there is a reference"});
}

void train_fields(TrainConfig& c, Section f) {
  f("samples_per_update", c.samples_per_update,
    {.help = "samples of one optimizer update, over all ranks",
     .unit = "samples",
     .needed = Needed::supervised,
     .range = kCount,
     .absent_means = "samples per step / updates_per_step",
     .example = 32});
  f("updates_per_step", c.updates_per_step,
    {.help = "optimizer updates of one step and epoch",
     .unit = "updates",
     .range = kCount,
     .absent_means = "1, or samples per step / samples_per_update"});
  f("epochs_per_step", c.epochs_per_step,
    {.help = "passes over the samples of a step", .unit = "epochs", .range = kCount});
  f("max_tokens_per_microbatch", c.max_tokens_per_microbatch,
    {.help = "token budget of one packed forward and backward",
     .unit = "tokens",
     .range = kCount,
     .absent = "auto",
     .absent_means =
         "the longest possible sequence, at least 4096; on a GPU what fits, up to 65,536; "
         "stages of a pipeline get smaller micro-batches of at least 4096, so that none waits long, "
         "but not where ZeRO 2 or 3 would exchange something for each"});
  f("last_partial", c.last_partial,
    {.help = "samples left over when a step does not divide into full updates: "
             "refuse, a smaller last update, or leave them out",
     .choices = kLastPartial});
  f("freeze", c.freeze,
    {.help =
         "Hugging Face tensors that are not trained, by name or pattern (* stands for any text): they have "
         "no gradients and no optimizer state, and keep their bits"});
  f("recompute.granularity", c.recompute.granularity,
    {.help = "activations that backward computes again instead of keeping them: none; selective: those that "
             "cost little; full: all but the input of a layer. No choice changes a bit",
     .choices = kGranularities});
  f("recompute.method", c.recompute.method,
    {.help = "of full: uniform: all layers, in runs of num_layers; block: the first num_layers alone",
     .choices = kRecomputeMethods});
  f("recompute.num_layers", c.recompute.num_layers,
    {.help = "see train.recompute.method", .unit = "layers", .range = kCount});
  f("offload.optimizer", c.offload_optimizer,
    {.help = "masters and moments in host memory, which each update reads and writes over the GPU's link: "
             "the same bits",
     .absent = "auto",
     .absent_means = "on a GPU, where the run does not fit otherwise",
     .example = true});
  f("cost_linear", c.cost_linear, {.help = "balancing over ranks: cost of one token", .range = kNotNegative});
  f("cost_quadratic", c.cost_quadratic,
    {.help = "balancing over ranks: cost of one pair of tokens of a sequence", .range = kNotNegative});
}

void optimizer_fields(OptimizerConfig& c, Section f) {
  f("lr", c.lr,
    {.help = "peak learning rate of AdamW", .needed = Needed::always, .range = {0, 1000}, .example = 1e-6});
  f("betas", c.betas,
    {.help = "decay of the first and second moment", .range = {0, 1, false, true}, .count = 2});
  f("eps", c.eps,
    {.help = "added to the root of the second moment; it has to be more than 0 in fp32",
     .range = {kLeastEps, kHuge}});
  f("weight_decay", c.weight_decay,
    {.help = "decoupled; parameters of two dimensions only", .range = kNotNegative});
  f("grad_clip", c.grad_clip, {.help = "largest global gradient norm; 0: off", .range = kNotNegative});
  f("schedule", c.schedule,
    {.help = "learning rate after warm-up; wsd: constant, then linear over the last tenth",
     .choices = kSchedules});
  f("warmup_steps", c.warmup_steps,
    {.help = "updates of linear warm-up", .unit = "updates", .range = {0, 1e12}});
  f("min_lr_ratio", c.min_lr_ratio, {.help = "lowest learning rate as a share of lr", .range = kShare});
  f("state", c.state,
    {.help =
         "type of the two moments; bf16: 4 bytes per parameter less, rounded up or down at random by seed, "
         "update and element, so that no layout and no resume changes a bit",
     .choices = kMomentFormats});
  f("master", c.master,
    {.help =
         "fp32 master of a bf16 weight: its own fp32, or the 16 bits that the weight lacks (the same bits "
         "of a run, 2 bytes per parameter less); auto: remainder for bf16 on cuda",
     .choices = kMasterFormats});
}

}  // namespace temper

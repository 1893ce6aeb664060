#include "src/config/fields.h"

#include <array>

#include "src/config/section.h"
#include "src/core/rng.h"

namespace temper {
namespace {

constexpr Range kSamples{1, SampleKey::kMaxSample};  // each has random numbers of its own

constexpr std::array<Words, 3> kDevices{"auto", "cpu", "cuda"};
constexpr std::array<Words, 4> kDtypes{"auto", "fp32", "bf16", "fp64"};
constexpr std::array<Words, 2> kInits{"load", "random"};
constexpr std::array<Words, 3> kOverlong{"error", "drop", "truncate-left"};
constexpr std::array<Words, 3> kTrainOn{"last", "all", "each"};
constexpr std::array<Words, 2> kIdleRanks{"error", "allow"};
constexpr std::array<Words, 2> kSharedGpus{"error", "allow"};
constexpr std::array<Words, 4> kLogLevels{"debug", "info", "warn", "error"};
constexpr std::array<Words, 2> kDumpFormats{"none", "zstd"};
constexpr std::array<Words, 3> kModes{"auto", "max", "min"};

void run_fields(RunConfig& c, Section f) {
  f("name", c.name,
    {.help = "name of the run; its folder is run.dir/run.name",
     .needed = Needed::always,
     .format = Format::folder_name,
     .example = "run-1"});
  f("dir", c.dir, {.help = "folder of all runs", .format = Format::not_empty});
  f("seed", c.seed, {.help = "seed of every random number", .range = {0, 9223372036854775807.0}});
  f("steps", c.steps,
    {.help = "training steps of the run, counted from 1",
     .unit = "steps",
     .needed = Needed::always,
     .range = {1, 1e12},
     .example = 100,
     .instead = "run.epochs"});
  f("epochs", c.epochs,
    {.help = "passes over data.train, instead of run.steps: in one, each line comes once (of a file with a "
             "weight that many times); what data.overlong drops does not count; rounded up to a whole step",
     .unit = "epochs",
     .range = {0, 1e9, true},
     .absent_means = "run.steps says how long the run is",
     .example = 3});
  f("device", c.device,
    {.help = "backend; auto: cuda where built and present, else cpu", .choices = kDevices});
  f("dtype", c.dtype,
    {.help = "type of weights and activations; auto: bf16 on cuda, fp32 on cpu; fp64 on cpu only",
     .choices = kDtypes});
  f("threads", c.threads,
    {.help = "threads per rank",
     .unit = "threads",
     .range = {1, 4096},
     .absent = "auto",
     .absent_means = "OMP_NUM_THREADS, or the rank's share of its host's cores"});
  f("max_policy_lag", c.max_policy_lag,
    {.help = "step s generates with exactly the weights after step max(0, s - 1 - this)",
     .unit = "steps",
     .range = {0, 16}});
  f("time_limit", c.time_limit_seconds,
    {.help = "after this time the run saves and ends with exit code 75",
     .unit = "duration",
     .absent = "none",
     .absent_means = "no limit",
     .format = Format::duration,
     .example = "3h45m"});
  f("overwrite", c.overwrite,
    {.help = "start anew in a folder that holds a run (with checkpoint.resume = \"none\"): its files are "
             "removed; the same command goes on with what it began until that is finished"});
  f("stop_when.metric", c.stop_when.metric,
    {.help =
         "metric of validation, e.g. \"val/test/avg@4\": the run ends, with code 0, when it has been good "
         "enough; written as stop_when = {metric = \"...\", at_least = 0.9, times = 2}; empty: never"});
  f("stop_when.at_least", c.stop_when.at_least,
    {.help = "good enough is this or more",
     .range = {-kHuge, kHuge},
     .absent_means = "none: needed with run.stop_when.metric",
     .example = 0.9});
  f("stop_when.times", c.stop_when.times,
    {.help = "it has to be so in that many validations in a row", .unit = "validations", .range = kCount});
}

void model_fields(ModelSection& c, TokenizerConfig& t, std::vector<Field>& fields) {
  Section f("model", fields);
  f("path", c.path,
    {.help = "Hugging Face folder of the model", .needed = Needed::always, .format = Format::not_empty});
  f("init", c.init, {.help = "load the weights of the folder, or start from random ones", .choices = kInits});
  f("context_tokens", c.context_tokens,
    {.help = "longest sequence, prompt and response together",
     .unit = "tokens",
     .range = {2, 2147483647.0},
     .absent = "auto",
     .absent_means = "max_position_embeddings of config.json"});
  f("digest", c.digest,
    {.help = "digest that the loaded weights must have, as the first line of a run and the manifests of its "
             "checkpoints say it; empty: any",
     .format = Format::digest});
  f("allow_unused", c.allow_unused,
    {.help =
         "tensors that may be left over in the folder, by name or pattern (* stands for any text): they are "
         "not used, and an export holds them as they are; those of other names are refused"});
  Section g("tokenizer", fields);
  g("path", t.path,
    {.help = "folder with tokenizer.json", .absent_means = "model.path", .format = Format::not_empty});
  g("chat_template", t.chat_template,
    {.help = "file with the chat template (Jinja)",
     .absent_means = "the template of the tokenizer's folder",
     .format = Format::not_empty});
}

/// What changes the distribution that tokens are drawn from.
void sampling_fields(RolloutConfig& c, Section& f) {
  f("temperature", c.temperature, {.help = "divides the logits; 0: greedy", .range = kTemperature});
  f("top_k", c.top_k, {.help = "sample among the k likeliest tokens; 0: off", .unit = "tokens"});
  f("top_p", c.top_p, {.help = "sample within this share of the probability; 1: off", .range = {0, 1, true}});
  f("min_p", c.min_p,
    {.help = "drop tokens below this share of the likeliest one's probability; 0: off", .range = kShare});
  f("repetition_penalty", c.repetition_penalty,
    {.help =
         "divides the positive and multiplies the negative logits of tokens in prompt or response; 1: off",
     .range = {0.01, 100}});
  f("presence_penalty", c.presence_penalty,
    {.help = "subtracted from the logits of tokens in the response; 0: off", .range = {-2, 2}});
  f("frequency_penalty", c.frequency_penalty,
    {.help = "subtracted from the logit of a token once for each time it is in the response; 0: off",
     .range = {-2, 2}});
  f("logit_bias", c.logit_bias,
    {.help = "added to the logits of single token ids before all penalties", .range = {-100, 100}});
}

void dump_fields(RolloutConfig& c, Section f) {
  f("dump_every", c.dump_every,
    {.help = "rollouts are written every so many steps; 0: never", .unit = "steps"});
  f("dump_compress", c.dump_compress,
    {.help = "how they are written; zstd: as step-000001.jsonl.zst", .choices = kDumpFormats});
}

void rollout_fields(RolloutConfig& c, Section f) {
  f("prompts_per_step", c.prompts_per_step,
    {.help = "prompts of one step, over all ranks",
     .unit = "prompts",
     .needed = Needed::reinforcement,
     .range = kCount,
     .example = 32});
  f("samples_per_prompt", c.samples_per_prompt,
    {.help = "responses sampled for each prompt (the group)",
     .unit = "samples",
     .needed = Needed::reinforcement,
     .range = kSamples,
     .example = 8});
  f("max_prompt_tokens", c.max_prompt_tokens,
    {.help = "longest prompt; data.overlong says what happens to longer ones",
     .unit = "tokens",
     .range = kCount,
     .absent = "auto",
     .absent_means = "context_tokens - max_new_tokens"});
  f("max_new_tokens", c.max_new_tokens,
    {.help = "longest response",
     .unit = "tokens",
     .needed = Needed::reinforcement,
     .range = kCount,
     .example = 256});
  f("min_new_tokens", c.min_new_tokens,
    {.help = "tokens of a response before a stop token or the end of a stop text may come; 0: off",
     .unit = "tokens"});
  sampling_fields(c, f);
  f("stop", c.stop, {.help = "texts that end a response", .format = Format::not_empty});
  f("include_stop_text", c.include_stop_text,
    {.help = "a response that a stop text ended keeps it: rewards see all that is trained"});
  f("stop_token_ids", c.stop_token_ids, {.help = "token ids that end a response, besides the model's own"});
  f("ignore_eos", c.ignore_eos, {.help = "do not stop at the model's own end tokens"});
  f("max_running_sequences", c.max_running_sequences,
    {.help = "sequences decoded at once per rank", .unit = "sequences", .range = kCount});
  f("prefill_chunk_tokens", c.prefill_chunk_tokens,
    {.help = "prompt tokens taken into one engine step", .unit = "tokens", .range = kCount});
  f("kv_page_tokens", c.kv_page_tokens,
    {.help = "tokens of one cache page, a multiple of 16", .unit = "tokens", .range = {16, 256}});
  f("kv_memory", c.kv_memory_bytes,
    {.help = "size of the key-value cache per rank",
     .unit = "bytes",
     .range = kBytes,
     .absent = "auto",
     .absent_means =
         "room for all running sequences at full length, at least one sequence; at most 2 GiB on the "
         "CPU, on a GPU what weights and optimizer leave",
     .format = Format::byte_size});
  f("tokens_per_step", c.tokens_per_step,
    {.help = "most tokens that a response gets in one step; it goes on in the next one; 0: no cut",
     .unit = "tokens"});
  f("dynamic_sampling_rounds", c.dynamic_sampling_rounds,
    {.help =
         "times in a step that prompts whose responses all earn the same reward are replaced by new ones; "
         "0: off",
     .unit = "rounds",
     .range = {0, 1000}});
}

void data_fields(DataConfig& c, RewardConfig& r, std::vector<Field>& fields) {
  Section f("data", fields);
  f("train", c.train,
    {.help = "JSONL files: a path, a list of paths, or a list of {path, weight}; lines that have messages, "
             "prompt and completion, instruction, input and output, or conversations need no keys below",
     .needed = Needed::always});
  f("prompt_key", c.prompt_key,
    {.help = "key of the prompt text in a line; of each of these keys a.b is b inside of a",
     .format = Format::not_empty});
  f("answer_key", c.answer_key,
    {.help = "key of the reference answer in a line", .format = Format::not_empty});
  f("messages_key", c.messages_key, {.help = "key of a list of chat messages in a line; empty: none"});
  f("response_key", c.response_key,
    {.help = "key of the response in a line (sft)", .format = Format::not_empty});
  f("domain_key", c.domain_key,
    {.help =
         "key of a line's domain (verl: data_source), by which rewards are chosen and metrics told apart; "
         "empty: none"});
  f("train_on", c.train_on,
    {.help =
         "turns of the assistant that sft trains: the last one; all in one sample, which the template "
         "must render alike at any place; or each in a sample of its own, as the template renders it last",
     .choices = kTrainOn});
  f("chat", c.chat, {.help = "render prompts with the chat template"});
  f("system_prompt", c.system_prompt, {.help = "system message put first; empty: none"});
  f("chat_arguments", c.chat_arguments,
    {.help = "variables of the chat template, e.g. {enable_thinking = false}"});
  f("shuffle", c.shuffle, {.help = "shuffle every epoch of the data"});
  f("overlong", c.overlong,
    {.help = "prompts longer than rollout.max_prompt_tokens: stop the run, leave them out, "
             "or cut them at the left",
     .choices = kOverlong});
  Section g("reward", fields);
  g("functions", r.functions,
    {.help = "reward functions: names or {name, weight, options of the function}, see `temper help rewards`; "
             "a program of your own: {name = \"command\", argv = [\"python3\", \"my_reward.py\"]}",
     .needed = Needed::rewards});
}

void cluster_fields(ClusterConfig& c, std::vector<Field>& fields) {
  Section f("cluster", fields);
  f("idle_ranks", c.idle_ranks,
    {.help = "ranks without a role: refuse or allow them", .choices = kIdleRanks});
  f("shared_gpus", c.shared_gpus,
    {.help =
         "several ranks on one GPU: refuse or allow them (for tests: tensors between such ranks go through "
         "host memory)",
     .choices = kSharedGpus});
  f("watchdog_seconds", c.watchdog_seconds,
    {.help = "a rank that makes no progress for so long is named and ends the run (76)",
     .unit = "seconds",
     .range = {1, 1e9}});
}

void output_fields(Config& c, std::vector<Field>& fields) {
  Section f("checkpoint", fields);
  f("every", c.checkpoint.every, {.help = "steps between checkpoints; 0: only at the end", .unit = "steps"});
  f("every_minutes", c.checkpoint.every_minutes,
    {.help =
         "a checkpoint also after the step in which so long has passed since the last one, and ten times as "
         "long as that one took; one more beside keep, which the next one replaces; 0: none",
     .unit = "minutes",
     .range = {0, 1e9}});
  f("keep", c.checkpoint.keep,
    {.help = "newest checkpoints that are kept", .unit = "checkpoints", .range = kCount});
  f("resume", c.checkpoint.resume,
    {.help = "auto: the newest good checkpoint of the run folder; none: start anew; "
             "or the path of a checkpoint or run folder, for a run folder that has none of its own",
     .format = Format::not_empty});
  f("accept_changes", c.checkpoint.accept_changes,
    {.help =
         "go on although algorithm.name, the model, the tokenizer, the data or run.seed changed since the "
         "checkpoint"});
  f("export_hf_every", c.checkpoint.export_hf_every,
    {.help = "steps between Hugging Face exports; 0: none", .unit = "steps"});
  f("best.metric", c.checkpoint.best.metric,
    {.help =
         "metric of validation, e.g. \"val/test/avg@4\", whose best checkpoints stay beside keep and are "
         "exported, as export/step-000010; written with mode and keep as best = {metric = \"...\"}; empty: "
         "none"});
  f("best.mode", c.checkpoint.best.mode,
    {.help = "which values of it are best; auto: the smallest of a loss or ppl, the largest of others",
     .choices = kModes});
  f("best.keep", c.checkpoint.best.keep,
    {.help = "so many of the best stay", .unit = "checkpoints", .range = kCount});
  validation_fields(c.validation, fields);
  Section h("log", fields);
  h("level", c.log.level, {.help = "least level that is logged", .choices = kLogLevels});
  h("samples_per_step", c.log.samples_per_step,
    {.help = "samples shown in the log per step", .unit = "samples"});
  h("progress_seconds", c.log.progress_seconds,
    {.help = "in a step that lasts longer, a line says what it is at, and again after as long; 0: none",
     .unit = "seconds",
     .range = {0, 1e6}});
  h("command", c.log.command,
    {.help = "a program that gets config, metrics and validation samples as lines of JSON, see `temper help "
             "trackers`: a list, e.g. [\"python3\", \"tools/trackers/wandb.py\"]; empty: none",
     .format = Format::not_empty});
  h("command_seconds", c.log.command_seconds,
    {.help = "it is late, and started again, when it does not take a step for so long",
     .unit = "seconds",
     .range = {0.1, 86400}});
  Section i("profile", fields);
  i("steps", c.profile.steps,
    {.help = "steps whose timeline is written to trace/ in the run folder, for example \"3-5\"",
     .unit = "steps"});
}

}  // namespace

std::vector<Field> config_fields(Config& c) {
  std::vector<Field> fields;
  run_fields(c.run, {"run", fields});
  model_fields(c.model, c.tokenizer, fields);
  algorithm_fields(c.algorithm, {"algorithm", fields});
  rollout_fields(c.rollout, {"rollout", fields});
  dump_fields(c.rollout, {"rollout", fields});
  agent_fields(c.rollout, {"rollout", fields});
  train_fields(c.train, {"train", fields});
  lora_fields(c.lora, {"lora", fields});
  optimizer_fields(c.optimizer, {"optimizer", fields});
  moe_fields(c.moe, {"moe", fields});
  data_fields(c.data, c.reward, fields);
  roles_fields(c.roles, fields);
  cluster_fields(c.cluster, fields);
  output_fields(c, fields);
  return fields;
}

}  // namespace temper

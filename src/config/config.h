#pragma once
// The typed config: one struct per TOML section, defaults here and nowhere else. Names, units and legal
// values are the contract of `temper help`. Values the user may leave to the program ("auto") are optionals
// until RunPlan (run/plan/plan.h) resolves them.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/config/agents_config.h"
#include "src/config/algorithm_config.h"
#include "src/config/lora_config.h"
#include "src/config/moe_config.h"
#include "src/config/reward_config.h"
#include "src/config/roles.h"
#include "src/core/json.h"

namespace temper {

/// The run ends when a metric of validation has been good enough often enough (run.stop_when).
struct StopWhen {
  std::string metric;  // empty: never
  std::optional<double> at_least;
  int64_t times = 1;  // validations in a row
};

struct RunConfig {
  std::string name;
  std::string dir = "runs";
  uint64_t seed = 0;
  int64_t steps = 0;
  std::optional<double> epochs;  // instead of steps, until the data are counted (run/session/start/epochs.h)
  std::string device = "auto";
  std::string dtype = "auto";
  std::optional<int64_t> threads;
  int64_t max_policy_lag = 0;
  std::optional<double> time_limit_seconds;  // written "3h45m", or "none"
  bool overwrite = false;
  StopWhen stop_when;
};

struct ModelSection {
  std::string path;
  std::string init = "load";
  std::optional<int64_t> context_tokens;
  std::string digest;                     // of the weights that are loaded; empty: any
  std::vector<std::string> allow_unused;  // tensors that may be left over, or patterns
};

struct TokenizerConfig {
  std::optional<std::string> path;           // model.path when absent
  std::optional<std::string> chat_template;  // a file; the folder's own when absent
};

/// Logits are divided by a temperature in fp32, which smaller ones take beyond its largest number.
inline constexpr double kLeastTemperature = 1e-6;
/// Smaller ones are nothing in fp32: a moment of 0 would be divided by 0.
inline constexpr double kLeastEps = 1.2e-38;

struct RolloutConfig {
  int64_t prompts_per_step = 0;
  int64_t samples_per_prompt = 0;
  std::optional<int64_t> max_prompt_tokens;
  int64_t max_new_tokens = 0;
  int64_t min_new_tokens = 0;
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::map<int64_t, double> logit_bias;  // by token id
  std::vector<std::string> stop;
  bool include_stop_text = false;
  std::vector<int64_t> stop_token_ids;
  bool ignore_eos = false;
  int64_t max_running_sequences = 256;
  int64_t prefill_chunk_tokens = 512;
  int64_t kv_page_tokens = 16;
  std::optional<int64_t> kv_memory_bytes;  // key rollout.kv_memory, per rank
  int64_t tokens_per_step = 0;
  int64_t dynamic_sampling_rounds = 0;
  int64_t dump_every = 1;              // 0: no rollouts are written
  std::string dump_compress = "none";  // or "zstd"
  std::vector<HarnessConfig> harness;  // empty: no sessions
  ServerConfig server;
  SessionLimitsConfig sessions;  // keys rollout.max_turns and those beside it
};

struct RecomputeConfig {
  std::string granularity = "none";
  std::string method = "uniform";
  int64_t num_layers = 1;
};

struct TrainConfig {
  std::optional<int64_t> samples_per_update;
  std::optional<int64_t> updates_per_step;
  int64_t epochs_per_step = 1;
  std::optional<int64_t> max_tokens_per_microbatch;
  std::string last_partial = "error";
  std::vector<std::string> freeze;  // tensors that are not trained, or patterns
  RecomputeConfig recompute;
  std::optional<bool> offload_optimizer;  // key train.offload.optimizer
  double cost_linear = 1.0;               // key train.cost_linear: cost of one token
  double cost_quadratic = 0.0001;         // key train.cost_quadratic: cost of one token pair of a sequence
};

struct OptimizerConfig {
  double lr = 0;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double grad_clip = 1.0;  // 0: off
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
  double min_lr_ratio = 0.0;
  std::string state = "fp32";   // of the moments
  std::string master = "auto";  // of the master weights
};

struct DataSource {
  std::string path;
  double weight = 1.0;
};

struct DataConfig {
  std::vector<DataSource> train;
  std::string prompt_key = "prompt";
  std::string answer_key = "answer";
  std::string messages_key;  // empty: no messages
  std::string response_key = "response";
  std::string domain_key;  // empty: lines have no domain
  std::string train_on = "last";
  bool chat = true;
  std::string system_prompt;
  Json chat_arguments = Json::object();
  bool shuffle = true;
  std::string overlong = "error";
};

struct ClusterConfig {
  std::string idle_ranks = "error";
  std::string shared_gpus = "error";
  double watchdog_seconds = 600;
};

/// Which checkpoints stay because a metric of validation was best there (checkpoint.best).
struct BestConfig {
  std::string metric;         // empty: none
  std::string mode = "auto";  // "max", "min"
  int64_t keep = 1;
};

struct CheckpointConfig {
  int64_t every = 0;
  double every_minutes = 15;  // besides; 0: never
  int64_t keep = 2;
  std::string resume = "auto";
  bool accept_changes = false;
  int64_t export_hf_every = 0;
  BestConfig best;
};

/// Keys of the section rollout as validation has them; an absent one is as there.
struct SamplingOverrides {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, max_prompt_tokens, max_new_tokens, min_new_tokens;
  std::optional<std::map<int64_t, double>> logit_bias;
  std::optional<std::vector<std::string>> stop;
  std::optional<std::vector<int64_t>> stop_token_ids;
  std::optional<bool> include_stop_text, ignore_eos;
};

/// One file of validation.data. What it does not say itself the section says.
struct ValidationSet {
  std::string name, path;                     // without a name: the file's
  std::optional<int64_t> samples_per_prompt;  // else validation.samples_per_prompt
  std::vector<RewardFunctionConfig> rewards;  // else reward.functions
  SamplingOverrides rollout;                  // else validation.rollout
  double weight = 1;                          // as files of data.train may have; each line is taken once
};

struct ValidationConfig {
  std::vector<ValidationSet> data;
  bool at_start = false;
  int64_t every = 0;  // 0: never in train, but for at_start
  int64_t samples_per_prompt = 1;
  int64_t max_prompts = 0;    // of each set; 0: all
  SamplingOverrides rollout;  // keys validation.rollout.*

  /// A run validates, not `temper eval` alone.
  bool in_run() const { return at_start || every > 0; }
};

struct ProfileConfig {
  std::string steps;  // a set like "3-5", empty: none
};

struct LogConfig {
  std::string level = "info";
  int64_t samples_per_step = 1;
  double progress_seconds = 30;
  std::vector<std::string> command;  // a program that gets config, metrics and samples; empty: none
  double command_seconds = 60;       // after which it is late
};

/// Its copies and ends are compiled once, in config.cpp: they are long, and most files need some.
struct Config {
  Config();
  Config(const Config& other);
  Config(Config&& other) noexcept;
  Config& operator=(const Config& other);
  Config& operator=(Config&& other) noexcept;
  ~Config();

  RunConfig run;
  ModelSection model;
  TokenizerConfig tokenizer;
  AlgorithmConfig algorithm;
  RolloutConfig rollout;
  TrainConfig train;
  LoraConfig lora;
  OptimizerConfig optimizer;
  MoeSection moe;
  DataConfig data;
  RewardConfig reward;
  RolesConfig roles;
  ClusterConfig cluster;
  CheckpointConfig checkpoint;
  ValidationConfig validation;
  LogConfig log;
  ProfileConfig profile;
};

/// Where a value came from: "default", "default of NAME" (of algorithm.name), "FILE:line", "command line".
using Origins = std::map<std::string, std::string>;

struct LoadedConfig {
  Config config;
  Origins origins;
};

/// Reads a TOML file and applies `section.key=value` overrides. Unknown keys, wrong types and illegal values
/// of a single key: Exit::usage with key, line, legal values and the nearest known key.
/// `roles`: those that the config may have sections of.
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         std::span<const RoleTraits> roles = built_in_role_traits());

/// The resolved config as TOML, each value with its origin as a comment; loading it gives an equal Config.
std::string dump_config(const LoadedConfig& loaded);

/// All values by dotted key, absent optionals left out: equal configs give equal objects.
Json config_json(const Config& config);

/// One row per key for `temper help`.
struct KeyDoc {
  std::string key, type, unit, default_text, legal, help;
  bool required = false;
  bool later = false;  // known, but only its off values are accepted in this version
};
std::vector<KeyDoc> config_key_docs();

}  // namespace temper

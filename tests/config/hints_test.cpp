// What people type who come from elsewhere: values in other spellings are understood where a key of that kind
// stands, names of other trainers are answered with one sentence.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "src/config/typed/meant.h"
#include "src/config/typed/peer_keys.h"
#include "src/config/units/byte_size.h"
#include "src/config/units/duration.h"
#include "src/config/values.h"
#include "src/core/split.h"
#include "tests/config/config_text.h"

namespace temper {
namespace {

Json value_of(const Config& config, const std::string& key) { return config_json(config).at(key); }

TEST(Hints, ValuesInOtherSpellingsAreUnderstood) {
  const struct {
    const char* written;
    const char* key;
    Json value;
  } cases[] = {
      {"run.dtype=bfloat16", "run.dtype", "bf16"},
      {"run.dtype=BF16", "run.dtype", "bf16"},
      {"run.dtype=torch.bfloat16", "run.dtype", "bf16"},
      {"run.dtype=float32", "run.dtype", "fp32"},
      {"run.dtype=double", "run.dtype", "fp64"},
      {"run.dtype=Auto", "run.dtype", "auto"},
      {"run.device=CUDA", "run.device", "cuda"},
      {"algorithm.name=GRPO", "algorithm.name", "grpo"},
      {"algorithm.kl_estimator=K3", "algorithm.kl_estimator", "k3"},
      {"optimizer.schedule=Cosine", "optimizer.schedule", "cosine"},
      {"optimizer.state=bfloat16", "optimizer.state", "bf16"},
      {"train.recompute.granularity=None", "train.recompute.granularity", "none"},
      {"log.level=WARNING", "log.level", "warn"},
      {"rollout.kv_memory=1 GB", "rollout.kv_memory", 1000000000},
      {"rollout.kv_memory=\"1.5 gib\"", "rollout.kv_memory", 1610612736},
      {"rollout.kv_memory=1000000", "rollout.kv_memory", 1000000},
      {"run.time_limit=03:45:00", "run.time_limit", "3h45m"},
      {"run.time_limit=\"03:45:00\"", "run.time_limit", "3h45m"},
      {"run.time_limit=48:00:00", "run.time_limit", "2d"},
      {"run.time_limit=1-12:00:00", "run.time_limit", "1d12h"},
      {"run.overwrite=True", "run.overwrite", true},
      {"data.shuffle=False", "data.shuffle", false},
      {"train.offload.optimizer=TRUE", "train.offload.optimizer", true},
      {"optimizer.lr=\"1e-6\"", "optimizer.lr", 1e-6},
      {"optimizer.lr=5.e-7", "optimizer.lr", 5e-7},
      {"optimizer.lr=.5", "optimizer.lr", 0.5},
      {"run.steps=\"100\"", "run.steps", 100},
      {"run.threads=\"2\"", "run.threads", 2},
  };
  for (const auto& [written, key, value] : cases) {
    SCOPED_TRACE(written);
    const ConfigReading reading = read_text(kMinimalConfig, {written});
    ASSERT_TRUE(reading.errors.empty()) << reading.errors[0].message;
    EXPECT_EQ(value_of(reading.loaded.config, key), value);
  }
  EXPECT_FALSE(load_text(kMinimalConfig, {"run.threads=AUTO"}).config.run.threads);
  EXPECT_FALSE(load_text(kMinimalConfig, {"run.time_limit=None"}).config.run.time_limit_seconds);
  const Config config = load_text(
                            "run = {time_limit = 03:45:00, dtype = \"bfloat16\", name = \"s\", steps = 2}\n"
                            "model.path = \"m\"\nalgorithm.name = \"SFT\"\noptimizer.lr = 1e-5\n"
                            "train.samples_per_update = 8\ndata.train = \"a\"\n")
                            .config;
  EXPECT_EQ(config.run.time_limit_seconds, 13500.0);
  EXPECT_EQ(config.run.dtype, "bf16");
  EXPECT_EQ(config.algorithm.name, "sft");
}

/// What is said in two ways elsewhere, or is none of ours, is not guessed.
TEST(Hints, OtherValuesAreRefused) {
  for (const char* written : {"run.time_limit=45:00",     "run.time_limit=3:5:00",
                              "run.time_limit=03:60:00",  "run.time_limit=00:00:00",
                              "run.time_limit=-03:45:00", "run.time_limit=1-",
                              "run.time_limit=03:45:00x", "run.time_limit=2024-01-01",
                              "rollout.kv_memory=1 G",    "rollout.kv_memory=1 GB x",
                              "rollout.kv_memory=GB",     "run.dtype=float8",
                              "run.dtype=float16",        "run.device=GPU",
                              "optimizer.lr=\"nan\"",     "optimizer.lr=\"\"",
                              "run.steps=\"1e2\"",        "run.steps=\"0\"",
                              "run.overwrite=1",          "algorithm.name=GRPO2",
                              "data.shuffle=on"})
    EXPECT_EQ(read_text(kMinimalConfig, {written}).errors.size(), 1u) << written;
}

TEST(Hints, WordsInAnyCase) {
  const std::vector<std::string_view> words{"auto", "fp32", "bf16", "fp16"};
  EXPECT_EQ(meant_word("FP16", words), "fp16");
  EXPECT_EQ(meant_word("half", words), "fp16");
  EXPECT_EQ(meant_word("Float", words), "fp32");
  for (const char* text : {"", "fp", "auto ", "double", "torch.", "bf16\n"})
    EXPECT_FALSE(meant_word(text, words)) << text;
  EXPECT_FALSE(meant_word("bfloat16", std::vector<std::string_view>{"fp32"}));
  EXPECT_EQ(parse_byte_size("1 GB"), 1000000000);
  EXPECT_EQ(parse_duration("00:00:01"), 1.0);
}

struct Typed {
  const char* written;  // an override
  const char* says;     // what the answer names
};

/// Each as its people write it; what it is here, or that there is none.
const Typed kTyped[] = {
    {"trainer.total_epochs=3", "`run.steps`"},
    {"run.num_train_epochs=3", "`run.steps`"},
    {"run.num_episodes=3", "`run.steps`"},
    {"rollout.num_rollout=3000", "`run.steps`"},
    {"train.max_epochs=1", "`train.epochs_per_step`"},
    {"train.steps_per_generation=4", "gradient_accumulation_steps"},
    {"rollout.num_steps_per_rollout=2", "`train.updates_per_step`"},
    {"train.generation_batch_size=64", "`rollout.samples_per_prompt`"},
    {"train.micro_train_batch_size=4", "cut by tokens"},
    {"train.max_tokens_per_gpu=9216", "`train.max_tokens_per_microbatch`"},
    {"model.max_seq_length=4096", "`model.context_tokens`"},
    {"rollout.prompt_max_len=512", "`rollout.max_prompt_tokens`"},
    {"rollout.rollout_max_response_len=8192", "`rollout.max_new_tokens`"},
    {"actor_rollout_ref.model.use_remove_padding=true", "always packed"},
    {"trainer.balance_batch=true", "`train.cost_linear`"},
    {"algorithm.adv_estimator=gae", "`algorithm.advantage`"},
    {"algorithm.beta=0.04", "`algorithm.kl_coef`"},
    {"algorithm.init_kl_coef=0.01", "`algorithm.kl_in`"},
    {"actor_rollout_ref.actor.use_kl_loss=true", "`algorithm.kl_coef`"},
    {"algorithm.use_kl_in_reward=true", "\"reward\""},
    {"actor_rollout_ref.actor.kl_loss_type=low_var_kl", "`algorithm.k3_clamp`"},
    {"algorithm.kl_ctrl.kl_coef=0.001", "no adaptive controller"},
    {"model.ref_load=x", "`model.path`"},
    {"algorithm.epsilon=0.2", "`algorithm.clip_low`"},
    {"algorithm.eps-clip-high=0.28", "`algorithm.clip_high`"},
    {"actor_rollout_ref.actor.clip_ratio_low=0.2", "`algorithm.clip_low`"},
    {"algorithm.eps_clip_low_high=[0.2,0.3]", "`algorithm.clip_high`"},
    {"actor_rollout_ref.actor.clip_ratio_c=3", "`algorithm.dual_clip`"},
    {"actor_rollout_ref.actor.entropy_coeff=0.001", "`algorithm.entropy_coef`"},
    {"actor_rollout_ref.actor.loss_agg_mode=token-mean", "`algorithm.aggregation`"},
    {"algorithm.loss_type=dr_grpo", "\"seq-mean-token-sum-norm\""},
    {"algorithm.norm_adv_by_std_in_grpo=false", "`algorithm.advantage_eps`"},
    {"algorithm.importance_sampling_level=sequence", "`algorithm.loss`"},
    {"algorithm.lam=1", "no critic"},
    {"critic.optim.lr=1e-5", "`optimizer.lr`"},
    {"critic.cliprange=0.5", "`algorithm.clip_low`"},
    {"critic.model=x", "no critic"},
    {"algorithm.use_tis=true", "`algorithm.tis_cap`"},
    {"algorithm.mask_truncated_completions=true", "`algorithm.mask_truncated`"},
    {"algorithm.rollout_token_veto_threshold=1e-4", "`algorithm.reject_token_below`"},
    {"reward.overlong_buffer.len=4096", "buffer_tokens"},
    {"algorithm.filter_groups.enable=true", "`rollout.dynamic_sampling_rounds`"},
    {"train.async_enable=true", "`run.max_policy_lag`"},
    {"rollout.partial_rollout=true", "`rollout.tokens_per_step`"},
    {"model.model_name_or_path=x", "`model.path`"},
    {"model.lora_rank=8", "`lora.rank`"},
    {"model.target_modules=[\"q_proj\"]", "`lora.targets`"},
    {"lora.lora_dropout=0.1", "no key here"},
    {"model.lora_alpha=16", "`lora.alpha`"},
    {"model.use_rslora=true", "`lora.rslora`"},
    {"model.lora_adapter_path=x", "`lora.path`"},
    {"model.load_in_4bit=true", "`run.dtype`"},
    {"run.fp16=true", "`run.dtype`"},
    {"run.bf16=true", "`run.dtype`"},
    {"data.train_files=x", "`data.train`"},
    {"data.val_files=x", "`validation.data`"},
    {"data.input_key=x", "`data.prompt_key`"},
    {"data.label_key=x", "`data.answer_key`"},
    {"data.apply_chat_template=true", "`data.chat`"},
    {"data.filter_overlong_prompts=true", "`data.overlong`"},
    {"data.completion_only_loss=true", "`data.response_key`"},
    {"custom_reward_function.path=x.py", "`temper help rewards`"},
    {"reward.reward_funcs=x", "`reward.functions`"},
    {"reward.reward_weights=[1]", "`reward.functions`"},
    {"reward_model.enable=true", "not in this version"},
    {"actor_rollout_ref.rollout.name=vllm", "`roles.rollout.ranks`"},
    {"rollout.use_vllm=true", "own kernels"},
    {"rollout.rollout_temperature=1", "`rollout.temperature`"},
    {"rollout.rollout_top_p=1", "`rollout.top_p`"},
    {"rollout.rollout_top_k=-1", "`rollout.top_k`"},
    {"rollout.rollout_stop=x", "`rollout.stop`"},
    {"actor_rollout_ref.rollout.gpu_memory_utilization=0.6", "`rollout.kv_memory`"},
    {"rollout.max_num_seqs=256", "`rollout.max_running_sequences`"},
    {"rollout.max_num_batched_tokens=8192", "`rollout.prefill_chunk_tokens`"},
    {"rollout.enforce_eager=true", "one engine"},
    {"trainer.n_gpus_per_node=8", "mpirun or srun"},
    {"trainer.nnodes=1", "mpirun or srun"},
    {"roles.colocate=true", "share all ranks"},
    {"actor_rollout_ref.rollout.tensor_model_parallel_size=2", "`roles.rollout.tp`"},
    {"roles.pipeline_model_parallel_size=2", "`roles.trainer.pp`"},
    {"algorithm.opd_kl_coef=0.5", "`algorithm.teacher_coef`"},
    {"roles.virtual_pipeline_model_parallel_size=2", "`roles.trainer.vpp`"},
    {"roles.ulysses_sequence_parallel_size=2", "`roles.trainer.cp`"},
    {"roles.expert_model_parallel_size=2", "not in this version"},
    {"train.zero_stage=3", "`roles.trainer.zero`"},
    {"actor_rollout_ref.actor.strategy=fsdp", "`roles.trainer.zero`"},
    {"actor_rollout_ref.actor.fsdp_config.param_offload=true", "`train.offload.optimizer`"},
    {"train.gradient_checkpointing=true", "`train.recompute.granularity`"},
    {"ray_init.num_cpus=8", "mpirun or srun"},
    {"actor_rollout_ref.actor.optim.lr=1e-6", "`optimizer.lr`"},
    {"actor_rollout_ref.rollout.multi_turn.max_assistant_turns=5", "`rollout.max_turns`"},
    {"rollout.tool_config_path=tools.yaml", "`rollout.harness`"},
    {"data.assistant_only_loss=true", "`data.train_on`"},
    {"optimizer.warmup_ratio=0.1", "`optimizer.warmup_steps`"},
    {"optimizer.lr_warmup_steps=10", "`optimizer.warmup_steps`"},
    {"optimizer.lr_scheduler_type=cosine", "`optimizer.schedule`"},
    {"optimizer.max_grad_norm=1", "`optimizer.grad_clip`"},
    {"optimizer.adam_beta2=0.99", "`optimizer.betas`"},
    {"optimizer.adam_epsilon=1e-8", "`optimizer.eps`"},
    {"optimizer.optim=adamw_torch", "AdamW"},
    {"log.report_to=wandb", "TensorBoard"},
    {"wandb.project=x", "TensorBoard"},
    {"trainer.logger=[\"wandb\"]", "TensorBoard"},
    {"log.logging_steps=1", "every step"},
    {"trainer.project_name=x", "`run.dir`"},
    {"trainer.experiment_name=x", "`run.name`"},
    {"trainer.save_freq=20", "`checkpoint.every`"},
    {"checkpoint.save_total_limit=2", "`checkpoint.keep`"},
    {"trainer.resume_mode=auto", "`checkpoint.resume`"},
    {"checkpoint.save_hf=true", "`checkpoint.export_hf_every`"},
    {"trainer.test_freq=5", "`validation.every`"},
    {"trainer.val_before_train=true", "`temper eval`"},
    {"run.checkpoint_must_save_by=03:45:00", "`run.time_limit`"},
    {"trainer.device=cuda", "`temper help verl`"},
    {"actor_rollout_ref.model.x=1", "`temper help verl`"},
};

TEST(Hints, NamesOfOtherTrainersAreAnswered) {
  for (const Typed& typed : kTyped) {
    const ConfigReading reading = read_text(kMinimalConfig, {typed.written});
    ASSERT_EQ(reading.errors.size(), 1u) << typed.written;
    const std::string& message = reading.errors[0].message;
    EXPECT_NE(message.find(typed.says), std::string::npos) << typed.written << ": " << message;
    EXPECT_TRUE(message.starts_with("unknown ")) << message;
  }
}

TEST(Hints, EveryRowIsTried) {
  std::set<std::string_view> tried;
  for (const Typed& typed : kTyped)
    for (const ConfigError& error : read_text(kMinimalConfig, {typed.written}).errors)
      for (const PeerName& row : peer_names())
        if (error.message.ends_with(row.says)) tried.insert(row.says);
  for (const PeerName& row : peer_names()) EXPECT_TRUE(tried.contains(row.says)) << row.names;
}

bool is_key(const std::string& name) {
  const std::vector<KeyDoc> docs = config_key_docs();
  return std::any_of(docs.begin(), docs.end(),
                     [&](const KeyDoc& doc) { return doc.key == name && !doc.later; });
}

/// A name has one answer, hides no key of ours, and the keys that the answer names exist.
TEST(Hints, AnswersAreTrue) {
  std::set<std::string> names;
  for (const PeerKey& row : peer_keys()) {
    EXPECT_TRUE(row.ours.empty() || is_key(std::string(row.ours))) << row.ours;
    names.insert(split(row.theirs, '.').back());
  }
  for (const PeerName& row : peer_names()) {
    for (const std::string& name : split(row.names, ' ')) {
      EXPECT_TRUE(names.insert(name).second) << name << " has another row";
      EXPECT_NE(peer_key_hint(name).find(row.says), std::string::npos) << name;
    }
    const std::vector<std::string> parts = split(row.says, '`');  // every second one is in backticks
    for (size_t i = 1; i < parts.size(); i += 2)
      if (parts[i].find('.') != std::string::npos) {
        EXPECT_TRUE(is_key(parts[i])) << row.names << ": " << parts[i];
      }
  }
  for (const KeyDoc& doc : config_key_docs()) {
    const bool hides = names.contains(split(doc.key, '.').back()) && !peer_key_hint(doc.key).empty();
    EXPECT_FALSE(hides && !doc.later) << doc.key << " in a wrong section is taken for another trainer's key";
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

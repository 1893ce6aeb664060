#include <array>

#include "src/config/typed/peer_keys.h"

namespace temper {
namespace {

// A name with a dot stands for keys that end so, a name without one also for the section of that name.
constexpr std::array kPeerNames{
    // how long, how much
    PeerName{"num_train_epochs total_epochs num_episodes num_epoch num_epochs",
             "is `run.epochs` here: passes over the lines of the data; `run.steps` counts training steps"},
    PeerName{"num_rollout", "is `run.steps` here: a step generates, scores and trains once"},
    PeerName{"max_epochs", "is `train.epochs_per_step` here: passes over the samples of a step"},
    PeerName{
        "steps_per_generation",
        "over gradient_accumulation_steps is `train.updates_per_step` here: optimizer updates on the samples "
        "of one step"},
    PeerName{"num_steps_per_rollout ppo_n_minibatches",
             "is `train.updates_per_step` here: optimizer updates on the samples of one step"},
    PeerName{"generation_batch_size",
             "is `rollout.prompts_per_step` x `rollout.samples_per_prompt` here: the samples of one step"},
    PeerName{"micro_train_batch_size micro_rollout_batch_size micro_batch_size ppo_micro_batch_size "
             "log_prob_micro_batch_size log_prob_micro_batch_size_per_gpu",
             "has no key here: micro-batches are cut by tokens, `train.max_tokens_per_microbatch`"},
    PeerName{"max_tokens_per_gpu max_tokens_per_mb log_prob_max_token_len_per_gpu",
             "is `train.max_tokens_per_microbatch` here: tokens of one packed forward and backward"},
    PeerName{"max_length max_seq_length max_seq_len max_model_len seq_len seq_length cutoff_len",
             "is `model.context_tokens` here: tokens of prompt and response together"},
    PeerName{"prompt_max_len rollout_max_prompt_len",
             "is `rollout.max_prompt_tokens` here: tokens of the longest prompt"},
    PeerName{"generate_max_len rollout_max_response_len max_response_len",
             "is `rollout.max_new_tokens` here: tokens of the longest response"},
    PeerName{
        "use_remove_padding packing packing_samples sequence_packing use_dynamic_bsz use_dynamic_batch_size",
        "has no key here: sequences are always packed without padding, up to "
        "`train.max_tokens_per_microbatch`"},
    PeerName{"balance_batch balance_data",
             "has no key here: work is always balanced over the ranks, by `train.cost_linear` and "
             "`train.cost_quadratic`"},
    // algorithm
    PeerName{
        "adv_estimator advantage_estimator",
        "is `algorithm.advantage` here, and `algorithm.name` chooses it together with a loss; there is no "
        "critic in this version"},
    PeerName{"beta kl_tau", "is `algorithm.kl_coef` here: the weight of the KL to the reference policy"},
    PeerName{"init_kl_coef",
             "is `algorithm.kl_coef` here, and `algorithm.kl_in` = \"reward\" takes the KL off the reward"},
    PeerName{"use_kl_loss", "is `algorithm.kl_coef` above 0 with `algorithm.kl_in` = \"loss\" here"},
    PeerName{"use_kl_in_reward", "is `algorithm.kl_coef` above 0 with `algorithm.kl_in` = \"reward\" here"},
    PeerName{
        "kl_loss_type kl_penalty",
        "is `algorithm.kl_estimator` here; verl's low_var_kl is \"k3\" with `algorithm.k3_clamp` = true"},
    PeerName{"kl_ctrl kl_target kl_horizon",
             "has no key here: `algorithm.kl_coef` stays what it is, there is no adaptive controller"},
    PeerName{"opd_kl_coef", "is `algorithm.teacher_coef` here, of the model at `roles.teacher.path`"},
    PeerName{"ref_model ref_load sync_ref_model ref_update_steps",
             "has no key here: the reference policy is the model at `model.path`, kept where "
             "`algorithm.kl_coef` is above 0, and it is never renewed"},
    PeerName{
        "epsilon eps_clip clip_ratio cliprange",
        "is `algorithm.clip_low` and `algorithm.clip_high` here: the ratio stays within 1 - clip_low and "
        "1 + clip_high"},
    PeerName{"clip_ratio_low", "is `algorithm.clip_low` here: the same number"},
    PeerName{"epsilon_high eps_clip_high clip_ratio_high eps_clip_higher",
             "is `algorithm.clip_high` here: the ratio stays below 1 + clip_high"},
    PeerName{"eps_clip_low_high", "is `algorithm.clip_low` and `algorithm.clip_high` here"},
    PeerName{"clip_ratio_c eps_clip_c delta", "is `algorithm.dual_clip` here, off unless it is set"},
    PeerName{"entropy_coeff entropy_loss_coef", "is `algorithm.entropy_coef` here: the same number"},
    PeerName{"loss_agg_mode", "is `algorithm.aggregation` here, with the same words"},
    PeerName{
        "loss_type",
        "is `algorithm.name` here, a row of defaults; of its parts TRL's dapo is `algorithm.aggregation` = "
        "\"token-mean\", grpo \"seq-mean-token-mean\", dr_grpo \"seq-mean-token-sum-norm\""},
    PeerName{
        "scale_rewards norm_adv_by_std_in_grpo disable_grpo_std_normalization grpo_std_normalization "
        "no_std_norm",
        "is `algorithm.advantage_std` here: \"group\", \"batch\" or \"none\", with `algorithm.advantage_eps` "
        "added"},
    PeerName{"importance_sampling_level loss_mode",
             "is `algorithm.loss` here: \"ppo\" has token ratios, \"gspo\" those of sequences"},
    PeerName{"lam gae_lambda", "has no key here: there is no critic in this version"},
    PeerName{"critic critic_learning_rate critic_warmup cliprange_value value_clip",
             "has no key here: there is no critic in this version, `algorithm.name` = \"grpo\" needs none"},
    PeerName{"use_tis tis_imp_ratio_cap tis_clip rollout_is rollout_correction "
             "vllm_importance_sampling_correction "
             "vllm_importance_sampling_cap enable_vllm_is_correction",
             "has no place here: under the same weights rollout and trainer agree bit for bit; for tokens of "
             "older weights there are `algorithm.tis_cap`, `algorithm.importance` and "
             "`algorithm.importance_form`"},
    PeerName{"rollout_rs rollout_token_veto_threshold",
             "is `algorithm.reject_mean_k3` or `algorithm.reject_token_below` here, for responses of older "
             "weights"},
    PeerName{"mask_truncated_completions overlong_filtering", "is `algorithm.mask_truncated` here"},
    PeerName{"overlong_buffer overlong_buffer_len",
             "is {name = \"length\", max_tokens, buffer_tokens, factor} among `reward.functions` here"},
    PeerName{
        "filter_groups dynamic_filtering dynamic_sampling_filter_path use_dynamic_sampling "
        "over_sampling_batch_size filter_zero_advantages",
        "is `rollout.dynamic_sampling_rounds` here: rounds in which prompts without signal are replaced"},
    // asynchrony
    PeerName{
        "async_train async_enable train_async max_off_policy_steps max_async_level staleness_threshold "
        "max_head_offpolicyness max_staleness",
        "is `run.max_policy_lag` here: steps that generation is ahead, with `roles.rollout.ranks` apart from "
        "`roles.trainer.ranks`; see `temper help async`"},
    PeerName{"partial_rollout partial_rollout_enable",
             "is `rollout.tokens_per_step` here: a response gets so many tokens in a step and goes on in the "
             "next"},
    // model, data, rewards
    PeerName{"model_name_or_path pretrain hf_checkpoint base_model actor_model_path",
             "is `model.path` here: a Hugging Face folder; see `temper help quickstart`"},
    PeerName{"peft peft_config use_peft use_lora lora_rank lora_r",
             "is `lora.rank` here, above 0 where adapters are trained"},
    PeerName{"lora_alpha", "is `lora.alpha` here"},
    PeerName{"target_modules lora_target_modules",
             "is `lora.targets` here: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"},
    PeerName{"use_rslora", "is `lora.rslora` here"},
    PeerName{"lora_adapter_path lora_path", "is `lora.path` here: a PEFT folder"},
    PeerName{"lora_dropout", "has no key here: adapters see every value of their input"},
    PeerName{"load_in_4bit load_in_8bit quantization fp8",
             "has no key here: weights are bf16, fp32 or fp64, as `run.dtype` says"},
    PeerName{"fp16", "has no key here: `run.dtype` is \"bf16\", \"fp32\" or \"fp64\""},
    PeerName{"bf16 torch_dtype mixed_precision param_dtype precision",
             "is `run.dtype` here: \"bf16\" has fp32 masters; \"auto\" is bf16 on a GPU"},
    PeerName{"train_files prompt_data dataset_name train_dataset dataset",
             "is `data.train` here: JSONL files; see `temper help data`"},
    PeerName{"val_files eval_dataset eval_prompt_data eval_data",
             "is `validation.data` here: JSONL files, written as `data.train`"},
    PeerName{"input_key", "is `data.prompt_key` here, or `data.messages_key` for lists of chat messages"},
    PeerName{"label_key", "is `data.answer_key` here"},
    PeerName{"apply_chat_template", "is `data.chat` here, which is true unless you say otherwise"},
    PeerName{"filter_overlong_prompts truncation",
             "is `data.overlong` here: \"error\", \"drop\" or \"truncate-left\""},
    PeerName{"completion_only_loss train_on_inputs",
             "has no key here: sft trains the tokens of the response (`data.response_key`) alone"},
    PeerName{"assistant_only_loss",
             "is `data.train_on` = \"all\" here; \"last\", the default, trains the last turn alone"},
    PeerName{"reward_funcs rm_type reward_manager reward_fn reward_functions custom_rm_path "
             "custom_reward_function remote_rm_url",
             "is `reward.functions` here; a program of your own is {name = \"command\", argv = [...]}; see "
             "`temper "
             "help rewards`"},
    PeerName{"reward_weights", "is the `weight` of each function in `reward.functions` here"},
    PeerName{
        "reward_model reward_pretrain reward_model_path",
        "has no key here: reward models are not in this version; `reward.functions` are rules and programs"},
    // sampling, engine
    PeerName{"rollout.name use_vllm vllm_mode vllm sglang inference_backend",
             "has no key here: temper generates with its own kernels, on the ranks of `roles.rollout.ranks`"},
    PeerName{"rollout_temperature", "is `rollout.temperature` here: the same number"},
    PeerName{"rollout_top_p", "is `rollout.top_p` here: the same number"},
    PeerName{"rollout_top_k", "is `rollout.top_k` here; what others write as -1 (off) is 0"},
    PeerName{"rollout_stop stop_strings", "is `rollout.stop` here: a list of texts"},
    PeerName{
        "gpu_memory_utilization vllm_gpu_memory_utilization mem_fraction_static sglang_mem_fraction_static",
        "is `rollout.kv_memory` here: not a share, but the size of the cache of a rank, such as \"10 GiB\""},
    PeerName{"max_num_seqs max_running_requests", "is `rollout.max_running_sequences` here"},
    PeerName{"max_num_batched_tokens chunked_prefill_size", "is `rollout.prefill_chunk_tokens` here"},
    PeerName{"enforce_eager free_cache_engine enable_sleep_mode vllm_enable_sleep_mode attn_implementation "
             "use_liger_kernel use_fused_kernels",
             "has no key here: there is one engine with one set of kernels for rollout and training"},
    // layout, machines
    PeerName{
        "n_gpus_per_node nnodes num_gpus num_nodes num_processes actor_num_gpus_per_node actor_num_nodes "
        "rollout_num_gpus vllm_num_engines",
        "has no key here: mpirun or srun says how many ranks there are, one for each GPU, and "
        "`roles.rollout.ranks` and `roles.trainer.ranks` which of them do what"},
    PeerName{"colocate colocate_all colocate_all_models hybrid_engine",
             "has no key here: roles share all ranks unless `roles.rollout.ranks` says otherwise"},
    PeerName{"tensor_model_parallel_size tensor_parallel_size vllm_tensor_parallel_size "
             "rollout_num_gpus_per_engine",
             "is `roles.trainer.tp` here, and `roles.rollout.tp` where rollout has another"},
    PeerName{"pipeline_model_parallel_size pipeline_parallel_size",
             "is `roles.trainer.pp` here, and `roles.rollout.pp` where rollout has another"},
    PeerName{"virtual_pipeline_model_parallel_size num_layers_per_virtual_pipeline_stage",
             "is `roles.trainer.vpp` here: the parts of each stage"},
    PeerName{"context_parallel_size ulysses_sequence_parallel_size ring_attn_size",
             "is `roles.trainer.cp` here: ranks that share the tokens of a micro-batch"},
    PeerName{"expert_model_parallel_size expert_parallel_size",
             "has no key here: mixture-of-experts models are not in this version"},
    PeerName{"zero_stage deepspeed fsdp fsdp_config sharding_strategy actor.strategy",
             "is `roles.trainer.zero` here: 1 shards the optimizer's state, 2 the gradients too, 3 the "
             "weights too"},
    PeerName{"param_offload optimizer_offload adam_offload cpu_offload offload_train optim_cpu_offload",
             "is `train.offload.optimizer` here, and `roles.reference.offload` for the reference: both are "
             "\"auto\""},
    PeerName{
        "gradient_checkpointing enable_gradient_checkpointing activation_checkpointing recompute_granularity",
        "is `train.recompute.granularity` here: \"none\", \"selective\" or \"full\""},
    PeerName{"ray ray_init ray_kwargs",
             "has no key here: mpirun or srun starts the ranks; see `temper help mpirun`"},
    // programs that play sessions
    PeerName{
        "max_assistant_turns max_user_turns max_iterations max_steps_per_episode max_tool_calls",
        "is `rollout.max_turns` here: turns of a session, which a program of `rollout.harness` plays"},
    PeerName{"tool_config_path interaction_config_path agent_loop_config_path environment_factory multi_turn",
             "is `rollout.harness` here: a program with tools and turns of its own, which asks the policy's "
             "endpoint"},
    // optimizer
    PeerName{"optim.lr actor_learning_rate", "is `optimizer.lr` here: the same number"},
    PeerName{"warmup_ratio lr_warmup_ratio lr_warmup_steps_ratio warmup_steps_proportion",
             "is `optimizer.warmup_steps` here: not a share, but a number of updates"},
    PeerName{"lr_warmup_steps num_warmup_steps lr_warmup_iters",
             "is `optimizer.warmup_steps` here, in updates"},
    PeerName{"lr_scheduler_type lr_scheduler lr_decay_style warmup_style",
             "is `optimizer.schedule` here: \"constant\", \"linear\", \"cosine\" or \"wsd\""},
    PeerName{"max_grad_norm clip_grad max_norm gradient_clipping",
             "is `optimizer.grad_clip` here: the same number"},
    PeerName{"adam_beta1 adam_beta2 adam_betas beta1 beta2",
             "is one of the two numbers of `optimizer.betas` here"},
    PeerName{"adam_epsilon adam_eps", "is `optimizer.eps` here: the same number"},
    PeerName{"optim optimizer_type", "has no key here: the optimizer is AdamW"},
    // what a run writes
    PeerName{"report_to wandb use_wandb wandb_project swanlab mlflow trackio trainer.logger use_tensorboard",
             "is `log.command` here: a program, such as tools/trackers/wandb.py, see `temper help trackers`; "
             "every "
             "run writes metrics.jsonl and TensorBoard files besides"},
    PeerName{"logging_steps log_interval", "has no key here: every step has its line"},
    PeerName{"project_name output_dir default_local_dir save_path ckpt_path",
             "is `run.dir` here: the folder of all runs, below which `run.name` is that of this one"},
    PeerName{"experiment_name run_name exp_name", "is `run.name` here: the run's folder is run.dir/run.name"},
    PeerName{"save_steps save_freq save_interval save_every",
             "is `checkpoint.every` here: steps between checkpoints"},
    PeerName{"save_total_limit max_actor_ckpt_to_keep max_ckpt_num keep_last",
             "is `checkpoint.keep` here: the newest checkpoints that are kept"},
    PeerName{"resume_mode resume_from_checkpoint resume_from_path load_checkpoint",
             "is `checkpoint.resume` here: \"auto\" (which is the default), \"none\" or a path"},
    PeerName{
        "save_hf save_hf_ckpt push_to_hub hub_model_id",
        "is `checkpoint.export_hf_every` here, or `temper export` afterwards: folders that you may upload"},
    PeerName{"eval_steps test_freq eval_interval val_period eval_strategy",
             "is `validation.every` here: steps between validations, 0 for never"},
    PeerName{"val_before_train eval_on_start",
             "is `validation.at_start` here: step 0 of the metrics; `temper eval` does the same alone"},
    PeerName{"max_time checkpoint_must_save_by",
             "is `run.time_limit` here: after it the run saves and ends with code 75"},
    // whole sections
    PeerName{"trainer",
             "is a section of verl, whose keys are in `run.steps`, `run.name`, `checkpoint.every` and "
             "`validation.every` here, those of ranks in [roles.trainer]; see `temper help verl`"},
    PeerName{
        "actor_rollout_ref actor",
        "is a section of verl, whose keys are in [model], [rollout], [algorithm], [train] and [optimizer] "
        "here; see `temper help verl`"},
};

}  // namespace

std::span<const PeerName> peer_names() { return kPeerNames; }

}  // namespace temper

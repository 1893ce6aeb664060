#include "src/config/typed/peer_keys.h"

#include <algorithm>
#include <array>

#include "src/core/check.h"
#include "src/core/split.h"

namespace temper {
namespace {

constexpr std::array kPeerKeys{
    PeerKey{"verl", "data.train_batch_size", "rollout.prompts_per_step", "prompts of one step"},
    PeerKey{"verl", "actor_rollout_ref.rollout.n", "rollout.samples_per_prompt", "responses per prompt"},
    PeerKey{"verl", "actor_rollout_ref.actor.ppo_mini_batch_size", "train.samples_per_update",
            "theirs counts prompts: multiply by rollout.n"},
    PeerKey{"verl", "actor_rollout_ref.actor.ppo_epochs", "train.epochs_per_step",
            "passes over a step's samples"},
    PeerKey{"verl", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "",
            "micro-batches are cut by train.max_tokens_per_microbatch"},
    PeerKey{"verl", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "train.max_tokens_per_microbatch",
            "tokens of one packed forward"},
    PeerKey{"verl", "data.max_prompt_length", "rollout.max_prompt_tokens", "tokens"},
    PeerKey{"verl", "data.max_response_length", "rollout.max_new_tokens", "tokens"},
    PeerKey{"verl", "trainer.total_training_steps", "run.steps", "training steps"},
    PeerKey{"ROLL", "rollout_batch_size", "rollout.prompts_per_step", "prompts of one step"},
    PeerKey{"ROLL", "num_return_sequences_in_group", "rollout.samples_per_prompt", "responses per prompt"},
    PeerKey{
        "ROLL", "per_device_train_batch_size", "",
        "with DeepSpeed samples_per_update = per_device x gradient_accumulation_steps x world; with Megatron "
        "world / (TP x PP x CP) takes the place of world, and expert parallelism never divides it"},
    PeerKey{"ROLL", "gradient_accumulation_steps", "",
            "see per_device_train_batch_size; micro-batches are cut by tokens"},
    PeerKey{"ROLL", "ppo_epochs", "train.epochs_per_step", "passes over a step's samples"},
    PeerKey{"ROLL", "prompt_length", "rollout.max_prompt_tokens", "tokens"},
    PeerKey{"ROLL", "response_length", "rollout.max_new_tokens", "tokens"},
    PeerKey{"ROLL", "max_steps", "run.steps", "training steps"},
    PeerKey{"ROLL", "device_mapping", "roles.trainer.ranks", "list(range(0,8)) is \"0-7\""},
    PeerKey{"TRL", "num_generations", "rollout.samples_per_prompt", "responses per prompt"},
    PeerKey{"TRL", "num_iterations", "train.epochs_per_step", "passes over a step's samples"},
    PeerKey{"TRL", "max_completion_length", "rollout.max_new_tokens", "tokens"},
    PeerKey{"TRL", "learning_rate", "optimizer.lr", "the same number"},
    PeerKey{"vLLM", "max_tokens", "rollout.max_new_tokens", "tokens"},
    PeerKey{"verl", "rollout.n", "rollout.samples_per_prompt", "responses per prompt"},
    PeerKey{"verl", "actor_rollout_ref.actor.kl_loss_coef", "algorithm.kl_coef", "with kl_in = \"loss\""},
    PeerKey{"llama.cpp", "temp", "rollout.temperature", "the same number"},
    PeerKey{"slime", "global_batch_size", "train.samples_per_update", "samples of one update"},
    PeerKey{"slime", "n_samples_per_prompt", "rollout.samples_per_prompt", "responses per prompt"},
};

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

std::string peer_name_hint(const std::string& key) {
  for (const PeerName& row : peer_names()) {
    if (row.names.find(last_part(key)) == std::string_view::npos) continue;
    for (const std::string& name : split(row.names, ' '))
      if (key == name || key.ends_with("." + name)) return fmt::format("; `{}` {}", name, row.says);
  }
  return "";
}

}  // namespace

std::span<const PeerKey> peer_keys() { return kPeerKeys; }

std::string peer_key_hint(std::string_view typed) {
  std::string key(typed);
  std::replace(key.begin(), key.end(), '-', '_');  // as options are written
  for (const PeerKey& row : kPeerKeys) {
    // `n` alone says nothing; longer names are known without their sections.
    const bool same =
        row.theirs == key || (last_part(key).size() > 1 && last_part(row.theirs) == last_part(key));
    if (!same) continue;
    if (row.ours.empty())
      return fmt::format("; {}'s `{}` has no key here: {}", row.peer, last_part(row.theirs), row.note);
    return fmt::format("; {}'s `{}` is `{}` here ({})", row.peer, last_part(row.theirs), row.ours, row.note);
  }
  return peer_name_hint(key);
}

}  // namespace temper

#include "src/run/session/run_inputs.h"

#include "src/core/process/progress.h"
#include "src/rl/trajectory_json.h"
#include "src/run/host/same_vocabulary.h"

namespace temper {
namespace {

std::unique_ptr<PromptStream> open_prompts(const RunTask& task, const RunInputs& inputs) {
  const Config& config = task.config();
  const bool sft = !task.plan.generates;
  auto prompts = std::make_unique<PromptStream>(
      config.data.train, config.data, config.run.seed, *inputs.text.tokenizer, inputs.text.chat_template(),
      PromptStream::Limits{task.plan.lengths.max_prompt, task.plan.lengths.longest, sft, task.plan.vocab_size,
                           task.plan.media_token_ids,
                           sft ? std::vector<HarnessConfig>() : config.rollout.harness});
  prompts->check_all([&](const Prompt& prompt, const std::string& where) {
    if (!sft) inputs.rewards->check_answer(prompt.answer, where, prompt.domain);
  });
  return prompts;
}

/// What this rank has read. The prompts of a validation are read when its role is made.
InputDigests digests_of(const RunTask& task, const Placement& placement, const RunInputs& inputs) {
  InputDigests read;
  for (const auto& [key, files] : task.model_files) read.add_folder(key, files);
  for (const auto& [name, file] : inputs.text.files()) read.add("tokenizer.path", name, file);
  if (inputs.prompts) read.add_list("data.train", inputs.prompts->digests());
  std::vector<FileDigest> replayed, held_out;
  if (placement.has(Duty::produces))
    for (const std::string& file : task.replay_files) replayed.push_back(digest_of_file(file));
  read.add_list(kReplay, replayed);
  const ValidationConfig& validation = task.config().validation;
  if (placement.has(Duty::trains) && task.validates())
    for (const ValidationSet& set : validation.data) held_out.push_back(digest_of_file(set.path));
  read.add_list("validation.data", held_out);
  return read;
}

}  // namespace

RunInputs::RunInputs(const RunTask& task, const Placement& placement, Comm& world) {
  enter_phase(Phase::load);
  const Config& config = task.config();
  if (!placement.roles.empty()) {
    if (!task.replay() || has_tokenizer(tokenizer_folder(config))) text = load_text_tools(config);
    if (text.tokenizer) require_same_vocabulary(config, *text.tokenizer);
    if (task.plan.generates) rewards = std::make_unique<RewardSet>();
    if (!config.reward.functions.empty()) rewards = std::make_unique<RewardSet>(config.reward, task.helpers);
    if (task.replay()) require_responses(task.replay_files);
    if (!task.replay() && placement.has(Duty::produces)) prompts = open_prompts(task, *this);
  }
  digests = agree_on_inputs(digests_of(task, placement, *this), world);
}

PromptFrame RunInputs::prompt_frame(const DataConfig& data) const {
  const ChatTemplate* const chat = text.chat_template();
  if (!data.chat || !chat || !text.tokenizer) return {};
  return temper::prompt_frame(*chat,
                              template_variables(*text.tokenizer, Json::array(), true, data.chat_arguments));
}

}  // namespace temper

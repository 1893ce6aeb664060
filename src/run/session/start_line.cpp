#include "src/run/session/start_line.h"

#include <spdlog/fmt/fmt.h>

#include "src/core/text/short_number.h"

namespace temper {
namespace {

/// Lines of the data; 0: this rank does not read them.
int64_t num_lines(const RunRank& rank) { return rank.prompts ? rank.prompts->num_lines() : 0; }

std::string data_text(const RunRank& rank) {
  if (rank.task.replay()) return fmt::format("{} recorded steps", rank.task.replay_files.size());
  std::string text;
  for (const DataSource& source : rank.config().data.train) text += (text.empty() ? "" : ", ") + source.path;
  return num_lines(rank) > 0 ? text + fmt::format(" ({} lines)", grouped_number(num_lines(rank))) : text;
}

std::string batch_text(const BatchPlan& batch) {
  const std::string samples =
      batch.samples_per_prompt > 1 ? fmt::format(" x {} samples", batch.samples_per_prompt) : "";
  const int64_t updates = batch.updates_per_step * batch.epochs_per_step;
  return fmt::format("{} prompts{}{}", batch.prompts_per_step, samples,
                     updates > 1 ? fmt::format(", {} updates each", updates) : "");
}

std::string steps_text(const RunRank& rank) {
  const int64_t first = rank.resume.step + 1, last = rank.last_step();
  return first > last ? fmt::format("all {} steps are done, ", last)
                      : fmt::format("steps {} to {} of ", first, last);
}

}  // namespace

std::string start_text(const RunRank& rank) {
  const RunPlan& plan = rank.task.plan;
  return fmt::format("{} of {} ({} parameters) on {}: {}{}; {} ranks, {}, {}, {}",
                     rank.config().algorithm.name, rank.config().model.path,
                     grouped_number(rank.policy->parameters().num_parameters()), data_text(rank),
                     steps_text(rank), batch_text(plan.batch), plan.num_ranks, rank.threads,
                     device_name(plan.device), dtype_name(plan.dtype));
}

Json start_event(const RunRank& rank) {
  const RunPlan& plan = rank.task.plan;
  Json event{{"ranks", plan.num_ranks},
             {"device", device_name(plan.device)},
             {"dtype", dtype_name(plan.dtype)},
             {"parameters", rank.policy->parameters().num_parameters()},
             {"updates", plan.batch.updates_total}};
  if (num_lines(rank) > 0) event["lines"] = num_lines(rank);
  const PromptFrame frame = run_prompt_frame(rank);
  if (!frame.before.empty() || !frame.after.empty())
    event["prompt_frame"] = Json::array({frame.before, frame.after});
  return event;
}

PromptFrame run_prompt_frame(const RunRank& rank) {
  const DataConfig& data = rank.config().data;
  const ChatTemplate* const chat = rank.text.chat_template();
  if (!data.chat || !chat || !rank.text.tokenizer) return {};
  return prompt_frame(*chat,
                      template_variables(*rank.text.tokenizer, Json::array(), true, data.chat_arguments));
}

}  // namespace temper

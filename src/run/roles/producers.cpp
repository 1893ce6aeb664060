#include "src/run/roles/producers.h"

#include "src/core/log.h"
#include "src/rl/trajectory_json.h"
#include "src/run/groups/prompt_work.h"

namespace temper {

bool SftProducer::phase(int64_t step) {
  if (step <= produced_) return true;
  const std::vector<DrawnPrompt> lines = prompts_.next(lines_per_step_);
  for (size_t i = 0; i < lines.size(); ++i)
    if (portion_.has(static_cast<int64_t>(i)))
      groups_.send_sampled(step, to_group({lines[i]}, {given_response(lines[i].prompt, step - 1)}));
  groups_.close_sampled(step, {.data_position = prompts_.position()});
  return true;
}

void SftProducer::restore(const CheckpointReader& checkpoint) {
  prompts_.set_position(checkpoint.count("data_position"));
  while (checkpoint.has(ahead_name(std::max(produced_, checkpoint.step()) + 1)))
    produced_ = std::max(produced_, checkpoint.step()) + 1;
}

bool ReplayProducer::phase(int64_t step) {
  FileDigest held;
  std::vector<Group> groups =
      read_rollouts(files_[static_cast<size_t>(step - 1)],
                    {plan_.vocab_size, plan_.lengths.context, plan_.routes, plan_.follows_routes}, &held);
  require_unchanged(inputs_, kReplay, held);
  if (groups.empty() && portion_.has(0))
    log::warn("{} is empty: nothing is trained in step {}", files_[static_cast<size_t>(step - 1)], step);
  for (Group& g : groups)  // lags become versions: the step begins with the weights after the one before
    for (Trajectory& t : g.samples) {
      for (auto& [version, tokens] : t.response.versions) version += step - 1;
      if (!plan_.role("teacher")) t.teacher_logprobs.clear();  // that of the run that wrote them
    }
  for (size_t i = 0; i < groups.size(); ++i)
    if (portion_.has(static_cast<int64_t>(i))) groups_.send_sampled(step, std::move(groups[i]));
  groups_.close_sampled(step, {.maxima = {{"replay/groups", static_cast<double>(groups.size())}}});
  return true;
}

std::unique_ptr<Role> make_sft_producer(const RoleParts& p) {
  return std::make_unique<SftProducer>(p.groups, *p.prompts, p.task.plan.batch.prompts_per_step, p.portion);
}

std::unique_ptr<Role> make_replay_producer(const RoleParts& p) { return std::make_unique<ReplayProducer>(p); }

}  // namespace temper

#include "src/run/roles/steps_ahead.h"

#include <algorithm>
#include <stdexcept>

namespace temper {

StepInput read_ahead(const CheckpointReader& checkpoint, const std::string& name) {
  return checkpoint.parsed(name, [](std::string_view bytes) {
    StepInput input = step_input_from_bytes(bytes);
    check_groups(input.groups, /*finished=*/true);
    if (input.note.num_groups != std::ssize(input.groups))
      throw std::runtime_error(
          fmt::format("{} groups, the note says {}", input.groups.size(), input.note.num_groups));
    return input;
  });
}

bool lacks_scores(const StepInput& input, std::vector<double> Trajectory::*logprobs) {
  return std::any_of(input.groups.begin(), input.groups.end(), [&](const Group& group) {
    return std::any_of(group.samples.begin(), group.samples.end(),
                       [&](const Trajectory& t) { return (t.*logprobs).size() != t.response.tokens.size(); });
  });
}

namespace {

/// Ranks that still annotate the step.
size_t awaited(const StepInput& input, const RunPlan& plan) {
  size_t ranks = 0;
  for (const auto& [name, logprobs] :
       {std::pair{"reference", &Trajectory::ref_logprobs}, {"teacher", &Trajectory::teacher_logprobs}})
    if (const RolePlan* role = plan.role(name); role && lacks_scores(input, logprobs))
      ranks += static_cast<size_t>(role->teams());
  return ranks;
}

}  // namespace

void put_back_steps(const CheckpointReader& checkpoint, const RunPlan& plan, GroupExchange& groups) {
  int64_t produced = checkpoint.step();
  for (; checkpoint.has(ahead_name(produced + 1)); ++produced) {
    StepInput input = read_ahead(checkpoint, ahead_name(produced + 1));
    const size_t ranks = awaited(input, plan);
    groups.put_back(produced + 1, std::move(input), ranks);
  }
  const std::string open = open_name(produced + 1);
  if (checkpoint.has(open))
    groups.put_back_open(produced + 1, read_ahead(checkpoint, open));
  else
    groups.put_back_unfinished(produced, read_unfinished(checkpoint));
}

}  // namespace temper

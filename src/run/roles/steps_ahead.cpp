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

bool lacks_reference(const StepInput& input, const RunPlan& plan) {
  if (!plan.role("reference")) return false;
  return std::any_of(input.groups.begin(), input.groups.end(), [](const Group& group) {
    return std::any_of(group.samples.begin(), group.samples.end(),
                       [](const Trajectory& t) { return t.ref_logprobs.size() != t.response.tokens.size(); });
  });
}

}  // namespace temper

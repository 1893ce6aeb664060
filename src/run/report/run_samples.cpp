#include "src/run/report/run_samples.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/rl/trajectory_json.h"

namespace temper {
namespace {

constexpr size_t kSteps = 6, kPrompts = 3;

/// Which `count` of `all` things, evenly spread: first and last are among them.
std::vector<size_t> spread(size_t all, size_t count) {
  std::vector<size_t> chosen;
  count = std::min(all, count);
  for (size_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? 0 : i * (all - 1) / (count - 1));
  return chosen;
}

/// The best and the worst response; one where all earn the same.
void add_extremes(const Group& group, std::vector<Trajectory>& samples) {
  const auto less = [](const Trajectory& a, const Trajectory& b) { return a.reward < b.reward; };
  const auto [worst, best] = std::minmax_element(group.samples.begin(), group.samples.end(), less);
  samples.push_back(*best);
  if (worst->reward < best->reward) samples.push_back(*worst);
}

StepSamples read_step(const std::string& folder, const std::string& file) {
  StepSamples step;
  step.step = std::stoll(file.substr(5, 18));
  try {
    const std::vector<Group> groups = read_rollouts(join_path(folder, file), {});
    step.groups = static_cast<int64_t>(groups.size());
    for (const size_t g : spread(groups.size(), kPrompts)) add_extremes(groups[g], step.samples);
  } catch (const Error& e) {
    step.defect = e.problem().what + ": " + e.problem().why;
  }
  return step;
}

bool is_rollout_file(const std::string& name) {
  return name.starts_with("step-") && name.size() > 5 && name[5] >= '0' && name[5] <= '9' &&
         (name.ends_with(".jsonl") || name.ends_with(".jsonl.zst"));
}

}  // namespace

std::vector<StepSamples> read_samples(const std::string& folder) {
  std::vector<StepSamples> steps;
  if (!is_directory(folder)) return steps;
  std::vector<std::string> files;
  for (const std::string& name : list_directory(folder))
    if (is_rollout_file(name)) files.push_back(name);
  for (const size_t f : spread(files.size(), kSteps)) steps.push_back(read_step(folder, files[f]));
  return steps;
}

}  // namespace temper

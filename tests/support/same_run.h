#pragma once
// Two runs of one config that came to their end: what differs between what they left. Times and speeds may;
// metrics, rollouts, exports and the state in the last checkpoint may not.

#include <map>
#include <set>

#include "src/io/checkpoint/checkpoint.h"
#include "tests/support/program.h"

namespace temper {

/// Every file below a folder, by its path there.
inline std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] =
          read_file(entry.path().string(), int64_t{1} << 30);
  return files;
}

/// Digests of the tensors of the newest checkpoint, by name.
inline std::map<std::string, std::string> newest_state(const std::string& run_folder) {
  const std::string checkpoints = run_folder + "/checkpoints";
  const std::vector<int64_t> steps = list_checkpoints(checkpoints);
  if (steps.empty()) return {};
  const Manifest manifest = Manifest::read(join_path(checkpoints, step_name(steps.back())));
  std::map<std::string, std::string> state{{"step", std::to_string(manifest.step())}};
  for (const auto& [name, tensor] : manifest.tensors())
    state[name] = fmt::format("{} {}", dtype_name(tensor.dtype), tensor.digest);
  return state;
}

/// The first name at which they differ; empty: none.
inline std::string first_difference(const std::map<std::string, std::string>& a,
                                    const std::map<std::string, std::string>& b) {
  for (const auto& [name, content] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return name + " is missing in the second";
    if (other->second != content) return name + " is another one";
  }
  for (const auto& [name, content] : b)
    if (!a.contains(name)) return name + " is missing in the first";
  return "";
}

/// In rollouts, exports and the newest checkpoint; empty: none.
inline std::string kept_difference(const Program& program, const std::string& a, const std::string& b) {
  const std::string of_a = program.path("runs/" + a), of_b = program.path("runs/" + b);
  for (const char* folder : {"rollouts", "validation", "export"})
    if (const std::string name =
            first_difference(files_below(join_path(of_a, folder)), files_below(join_path(of_b, folder)));
        !name.empty())
      return fmt::format("{}/{}", folder, name);
  if (const std::string name = first_difference(newest_state(of_a), newest_state(of_b)); !name.empty())
    return "newest checkpoint: " + name;
  return "";
}

/// Empty: they are the same run.
inline std::string run_difference(const Program& program, const std::string& a, const std::string& b) {
  if (program.fixed_metrics(a) != program.fixed_metrics(b))
    return fmt::format("metrics differ:\n{}and\n{}", program.fixed_metrics(a), program.fixed_metrics(b));
  return kept_difference(program, a, b);
}

}  // namespace temper

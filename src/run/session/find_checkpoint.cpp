#include "src/run/session/find_checkpoint.h"

#include <spdlog/spdlog.h>

#include "src/core/file.h"
#include "src/io/checkpoint.h"
#include "src/run/record/run_folder.h"

namespace temper {

std::string find_checkpoint(const std::string& folder, Comm& comm) {
  std::string found;
  if (comm.rank() == 0) {
    std::vector<int64_t> steps = list_checkpoints(folder);
    for (size_t i = steps.size(); i-- > 0 && found.empty();) {
      const std::string path = join_path(folder, step_name(steps[i]));
      std::string defect;
      try {
        const std::vector<Damage> damage = verify_checkpoint(path);
        if (damage.empty())
          found = path;
        else
          defect = fmt::format("{}: {}", damage.front().file, damage.front().reason);
      } catch (const Error& e) {  // a manifest that cannot be used; storage that fails now may work later
        if (e.code() == Exit::storage) throw;
        defect = e.problem().why;
      }
      if (!defect.empty()) spdlog::warn("checkpoint {} is passed over: {}", path, defect);
    }
    if (found.empty() && !steps.empty())  // a new start would remove them
      fail(Exit::data, {.what = "no checkpoint of this run can be used",
                        .where = folder,
                        .why = fmt::format("{} found, none is sound; the log says why", steps.size()),
                        .fix = "choose another run.name, or start anew with checkpoint.resume = \"none\" and "
                               "run.overwrite = true"});
  }
  return comm.broadcast(found, 0, "checkpoint to resume from");
}

std::string sound_checkpoint(const std::string& path, Comm& comm) {
  const std::string checkpoint = resolve_checkpoint(path);
  if (comm.rank() == 0) require_sound(checkpoint);
  comm.barrier("checkpoint verified by rank 0");
  return checkpoint;
}

std::string resolve_checkpoint(const std::string& path) {
  if (path_exists(join_path(path, "manifest.json"))) return path;
  const std::string folder = join_path(path, "checkpoints");
  const std::vector<int64_t> steps = list_checkpoints(is_directory(folder) ? folder : path);
  if (steps.empty())
    fail(Exit::usage, {.what = "no checkpoint here",
                       .where = path,
                       .why = path_exists(path) ? "it holds no step-NNNNNN with a manifest.json"
                                                : "the path does not exist",
                       .fix = "name a step folder or a run folder"});
  return join_path(is_directory(folder) ? folder : path, step_name(steps.back()));
}

}  // namespace temper

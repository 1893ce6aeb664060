#include "src/run/verbs/train_command.h"

#include "src/comm/mpi_comm.h"
#include "src/config/load.h"
#include "src/rl/registry.h"
#include "src/run/plan/model_facts.h"
#include "src/run/session/gpu.h"
#include "src/run/session/session.h"

namespace temper {

int run_train(const CommandLine& line) {
  LoadedConfig loaded = load_config(line.positional, line.overrides);
  std::vector<std::string> unused;
  if (line.has("--replay")) unused = {"data.train", "validation.data", "checkpoint.resume"};
  require_paths(loaded, unused);
  std::optional<Helpers> helpers;
  if (needs_helpers(loaded.config.reward)) helpers.emplace();  // before MPI has threads
  MpiSession mpi(nullptr, nullptr);
  const std::unique_ptr<Comm> all = mpi.make_comm_of_all(loaded.config.cluster.watchdog_seconds);
  const Device device = settle_device(loaded, *all);
  const int64_t gpu_bytes = gpu_bytes_per_rank(mpi, device, *all);
  const RunPlan plan = make_plan(loaded, mpi.size(), read_model_facts(loaded.config.model.path), gpu_bytes);
  settle_sizes(loaded, plan, gpu_bytes);
  return run_session(
      {loaded, plan, line.list("--replay"), line.text("--dump-gradients"), helpers ? &*helpers : nullptr},
      mpi);
}

}  // namespace temper

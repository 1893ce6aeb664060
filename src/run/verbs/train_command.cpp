#include "src/run/verbs/train_command.h"

#include "src/comm/mpi_comm.h"
#include "src/comm/watch/watch.h"
#include "src/config/load.h"
#include "src/config/methods.h"
#include "src/core/file.h"
#include "src/core/process/stop_signal.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/rl/registry.h"
#include "src/run/host/gpu.h"
#include "src/run/plan/memory/host_memory.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/report/planned_parts.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/run_log.h"
#include "src/run/session/session.h"
#include "src/run/session/start/epochs.h"
#include "src/run/verbs/guard.h"
#include "src/run/verbs/report_command.h"

namespace temper {
namespace {

/// Whether the run can go on after a rank or a GPU was lost.
std::function<bool()> checkpoint_check(const Config& config) {
  const std::string root = join_path(config.run.dir, config.run.name);
  return [root] { return !list_checkpoints(join_path(root, "checkpoints")).empty(); };
}

Watch::Options watch_options(const Config& config) {
  const std::string root = join_path(config.run.dir, config.run.name);
  return {.limit_seconds = config.cluster.watchdog_seconds,
          .report_file = join_path(root, "missing-rank.txt"),
          .has_checkpoint = checkpoint_check(config),
          .log_of = [root](int rank) { return rank_log_file(root, rank); },
          .tell_seconds = progress_interval(config.log.progress_seconds),
          .tell = log_progress};
}

/// Rollouts are made, or read; those of sft stand in the data.
void require_rollouts(const CommandLine& line, const Config& config) {
  if (!line.has("--rollouts-only")) return;
  const bool replays = line.has("--replay");
  if (!replays && algorithm_traits(config.algorithm.name).generates) return;
  fail(Exit::usage, {.what = "no rollouts to make",
                     .where = "--rollouts-only",
                     .why = replays ? "--replay reads them from files"
                                    : "algorithm.name = \"" + config.algorithm.name + "\" generates nothing",
                     .fix = replays ? "leave one of both options out" : "leave the option out"});
}

}  // namespace

int run_train(const CommandLine& line) {
  install_stop_signals();
  LoadedConfig loaded = load_config(line.positional, line.overrides);
  require_rollouts(line, loaded.config);
  std::vector<std::string> unused;
  if (line.has("--replay")) unused = {"data.train", "validation.data", "checkpoint.resume"};
  require_paths(loaded, unused);
  std::optional<Helpers> helpers;
  const bool programs = starts_programs(loaded.config);
  if (programs) helpers.emplace();  // before there are threads
  Watch watch(watch_options(loaded.config));
  MpiSession mpi(nullptr, nullptr);
  const double wait_limit = watch.connect(mpi);
  const std::unique_ptr<Comm> all = mpi.make_comm_of_all(wait_limit);
  const Device device = resolve_device(loaded, *all);
  resolve_epochs(loaded, std::ssize(line.list("--replay")), *all);
  const int64_t gpu_bytes = gpu_bytes_per_rank(mpi, device, *all);
  const RunModels models = read_run_models(loaded.config);
  const RunPlan plan = make_plan(loaded, mpi.size(), models,
                                 {{gpu_bytes, "its share of the GPU"}, share_of_host(mpi.ranks_on_node())});
  resolve_sizes(loaded, plan, gpu_bytes);
  require_free_host_memory(plan, mpi.ranks_on_node());
  const RunTask task{loaded,
                     plan,
                     line.list("--replay"),
                     line.text("--dump-gradients"),
                     helpers ? &*helpers : nullptr,
                     wait_limit,
                     models.files,
                     line.has("--rollouts-only")};
  const auto run = [&] { return run_session(task, mpi); };
  const auto planned = [&](std::string_view phase) { return planned_parts(plan, mpi.rank(), phase); };
  const int code =
      retry_after_loss([&] { return tell_of_planned(run, planned); }, checkpoint_check(loaded.config));
  if (mpi.rank() == plan.trainer().ranks.front())
    write_page_of_run(join_path(loaded.config.run.dir, loaded.config.run.name));
  return code;
}

}  // namespace temper

#pragma once
// Runs one after the other by ranks that are started once: to start them takes as long as several steps of a
// tiny model. mpirun starts the test program itself then, whose main is run_tests_or_list(), and each run is
// made as `temper train` makes it (src/run/verbs/train_command.cpp).

#include <gtest/gtest.h>

#include "src/comm/mpi_comm.h"
#include "src/comm/watch/watch.h"
#include "src/config/load.h"
#include "src/core/process/stop_signal.h"
#include "src/run/host/gpu.h"
#include "src/run/plan/memory/host_memory.h"
#include "src/run/plan/model_facts.h"
#include "src/run/session/start/epochs.h"
#include "src/run/session/session.h"
#include "src/run/verbs/command_line.h"
#include "src/run/verbs/guard.h"
#include "tests/support/program.h"

namespace temper {

/// Makes a run by ranks that are up.
inline int train(const CommandLine& line, const MpiSession& mpi, double wait_limit) {
  LoadedConfig loaded = load_config(line.positional, line.overrides);
  const std::unique_ptr<Comm> all = mpi.make_comm_of_all(wait_limit);
  const Device device = resolve_device(loaded, *all);
  resolve_epochs(loaded, std::ssize(line.list("--replay")), *all);
  const int64_t gpu_bytes = gpu_bytes_per_rank(mpi, device, *all);
  const RunPlan plan = make_plan(loaded, mpi.size(), read_run_models(loaded.config),
                                 {{gpu_bytes, "its share of the GPU"}, share_of_host(mpi.ranks_on_node())});
  resolve_sizes(loaded, plan, gpu_bytes);
  require_free_host_memory(plan, mpi.ranks_on_node());
  return run_session(
      {loaded, plan, line.list("--replay"), line.text("--dump-gradients"), nullptr, wait_limit}, mpi);
}

/// Makes the runs of a list: kNextRun begins each command line among the words. Returns the exit code of the
/// first that fails.
inline int run_list(const std::vector<const char*>& words) {
  install_stop_signals();
  Watch watch({.limit_seconds = Config().cluster.watchdog_seconds, .report_file = "", .has_checkpoint = [] {
                 return false;
               }});
  const MpiSession mpi(nullptr, nullptr);
  const double wait_limit = watch.connect(mpi);
  for (auto at = words.begin(); at != words.end();) {
    const auto next = std::find(at + 1, words.end(), std::string_view(kNextRun));
    std::vector<const char*> line(at, next);  // kNextRun is in the place of the program's name
    const int code = train(parse_command_line(static_cast<int>(line.size()), line.data()), mpi, wait_limit);
    if (code != 0) return code;
    at = next;
  }
  return 0;
}

/// The main of a test program that uses Program::run_ranks_each().
inline int run_tests_or_list(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == kNextRun)
    return run_guarded([&] { return run_list({argv + 1, argv + argc}); }, /*json=*/false);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace temper

#include "src/run/verbs/eval_command.h"

#include <spdlog/spdlog.h>

#include <cstdio>

#include "src/comm/watch.h"
#include "src/config/load.h"
#include "src/core/process/progress.h"
#include "src/rl/registry.h"
#include "src/run/plan/host_memory.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/run_log.h"
#include "src/run/roles/validation.h"
#include "src/run/session/gpu.h"
#include "src/run/session/model_host.h"

namespace temper {

int run_eval(const CommandLine& line) {
  LoadedConfig loaded = load_config(line.positional, line.overrides);
  const Config& config = loaded.config;
  require_paths(loaded, {"data.train", "checkpoint.resume"});
  std::optional<Helpers> helpers;
  if (needs_helpers(config.reward)) helpers.emplace();  // before there are threads
  Watch watch({.limit_seconds = config.cluster.watchdog_seconds,
               .report_file = "",
               .has_checkpoint = [] { return false; },
               .tell_seconds = progress_interval(config.log.progress_seconds),
               .tell = log_progress});
  MpiSession mpi(nullptr, nullptr);
  const std::unique_ptr<Comm> comm = mpi.make_comm_of_all(watch.connect(mpi));
  const int64_t gpu_bytes = gpu_bytes_per_rank(mpi, settle_device(loaded, *comm), *comm);
  const RunPlan plan = make_plan(loaded, mpi.size(), read_model_facts(config.model.path),
                                 {{gpu_bytes, "its share of the GPU"}, share_of_host(mpi.ranks_on_node())});
  require_free_host_memory(plan, mpi.ranks_on_node());
  if (!plan.validates)
    fail(Exit::usage, {.what = "nothing to evaluate",
                       .where = "validation.data",
                       .why = "the list is empty",
                       .fix = "name a JSONL file in validation.data"});
  start_log("", config.log.level, mpi.rank(), mpi.rank() == 0);
  const TextTools text = load_text_tools(config);
  std::optional<int64_t> threads = config.run.threads;
  if (line.has("--threads")) threads = line.integer("--threads", 1);
  const Device device = take_device(mpi, plan.device, *comm, true, config.cluster.shared_gpus == "allow");
  ModelHost host(mpi, device, plan.dtype, threads);
  const std::unique_ptr<Model> model = host.load(first_weights(config, plan));
  if (const std::string lost = lost_end_tokens_text(model->config(), text.tokenizer->eos_id()); !lost.empty())
    spdlog::warn("{}", lost);
  Engine engine(*model, engine_options(config, plan), host.ctx().lane);
  const RewardSet rewards(config.reward, helpers ? &*helpers : nullptr);
  Validation validation({config, plan, *comm, host.ctx(), *model, engine, *text.tokenizer,
                         text.chat_template(), rewards, /*stops=*/[] { return false; }});
  enter_phase(Phase::validation);
  Json result = Json::object();
  const std::optional<Validation::Result> made = validation.run(0);
  for (const auto& [name, value] : made->metrics) result[name] = value;
  if (comm->rank() == 0) std::printf("%s\n", dump_json_line(result).c_str());
  return static_cast<int>(Exit::ok);
}

}  // namespace temper

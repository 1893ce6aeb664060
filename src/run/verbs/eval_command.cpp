#include "src/run/verbs/eval_command.h"

#include <cstdio>
#include <numeric>

#include "src/comm/mpi_comm.h"
#include "src/ops/backend.h"
#include "src/run/record/run_log.h"
#include "src/run/roles/validation.h"
#include "src/run/session/setup.h"
#include "src/run/verbs/check_command.h"

namespace temper {

int run_eval(const CommandLine& line) {
  const LoadedConfig loaded = load_config(line.positional, line.overrides);
  const Config& config = loaded.config;
  require_paths(loaded, {"data.train", "checkpoint.resume"});
  MpiSession mpi(nullptr, nullptr);
  const RunPlan plan = make_plan(loaded, mpi.size(), read_model_facts(config.model.path));
  if (!plan.validates)
    fail(Exit::usage, {.what = "nothing to evaluate",
                       .where = "validation.data",
                       .why = "the list is empty",
                       .fix = "name a JSONL file in validation.data"});
  std::vector<int> world(static_cast<size_t>(mpi.size()));
  std::iota(world.begin(), world.end(), 0);
  const std::unique_ptr<Comm> comm = mpi.make_comm(world, config.cluster.watchdog_seconds);
  start_log("", config.log.level, mpi.rank(), mpi.rank() == 0);
  const std::string folder = config.tokenizer.path.value_or(config.model.path);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::optional<ChatTemplate> chat =
      load_chat_template(folder, config.tokenizer.chat_template.value_or(""));
  const bool random = config.model.init == "random";
  const auto model =
      load_model(config.model.path, plan.dtype, plan.context_tokens, false, random, config.run.seed);
  std::optional<int64_t> threads = config.run.threads;
  if (line.has("--threads")) threads = line.integer("--threads", 1);
  Backend backend(Device::cpu, resolve_threads(threads, mpi.ranks_on_node()));
  Journal journal(nullptr, 0);
  const std::unique_ptr<Mailbox> mailbox = mpi.make_mailbox(config.cluster.watchdog_seconds);
  const RoleRanks ranks{world, {}, world};
  EndOfRun end(*mailbox, ranks);
  GroupExchange groups(*mailbox, ranks, 0, end);
  WeightSync weights(*mailbox, ranks, end);
  Trace trace(mpi.rank(), {});
  Services services{loaded, plan,    comm.get(), nullptr,    backend.ctx(), journal, end,
                    groups, weights, *model,     &tokenizer, nullptr,       trace};
  Engine engine(*model, engine_options(config, plan), backend.ctx().lane);
  Json result = Json::object();
  for (const auto& [name, value] : Validation(services, engine, chat ? &*chat : nullptr).run(0))
    result[name] = value;
  if (comm->rank() == 0) std::printf("%s\n", dump_json_line(result).c_str());
  return static_cast<int>(Exit::ok);
}

}  // namespace temper

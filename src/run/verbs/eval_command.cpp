#include "src/run/verbs/eval_command.h"

#include <numeric>

#include "src/comm/mesh.h"
#include "src/comm/watch/watch.h"
#include "src/config/load.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/core/process/results.h"
#include "src/rl/registry.h"
#include "src/rl/trajectory_json.h"
#include "src/run/host/gpu.h"
#include "src/run/host/model_host.h"
#include "src/run/host/rank_threads.h"
#include "src/run/plan/memory/host_memory.h"
#include "src/run/plan/model_facts.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/origins/output_settings.h"
#include "src/run/record/run_log.h"
#include "src/run/record/shared_results.h"
#include "src/run/roles/validation.h"
#include "src/run/session/start/epochs.h"
#include "src/run/session/start/find_checkpoint.h"

namespace temper {

namespace {

constexpr double kWaitSeconds = 86400;  // one rank may have a day's more work than another

/// The line is that of a rollout file, without what only training has.
Json result_line(const Trajectory& t, const std::string& set) {
  Json line = Validation::line_of(t, 0, set);
  for (const char* key : {"step", "policy_version", "policy_versions", "advantage", "ref_logprobs"})
    line.erase(key);
  return line;
}

/// What the lines of --out depend on.
Json settings_of(const Config& config, ModelHost& host, const TextTools& text, const Validation& validation) {
  Json settings{{"verb", "eval"}};
  settings.update(sampling_settings(config));
  settings["device"] = device_name(host.ctx().device);
  settings["dtype"] = dtype_name(host.dtype());
  settings["model"] = host.model_digests(config.model.path);
  settings["tokenizer"] = settings_of_files(text.files());
  settings["validation.data"] = Json::array();
  for (const FileDigest& file : validation.digests()) settings["validation.data"].push_back(file.digest);
  return settings;
}

/// The metrics. `out`: a file with a line per sample, written as they are scored; it goes on after the
/// prompts that it has. Empty: none.
std::map<std::string, double> evaluate(Validation& validation, const std::string& out, const Json& settings,
                                       const MpiSession& mpi, Comm& comm) {
  if (out.empty()) return validation.run(0, {})->metrics;
  Validation::Record record;
  const auto belongs = [&](const Json& line, size_t number, size_t sample) {
    const Validation::Item item = validation.item(number);
    if (line.value("set", Json()) != item.set || line.value("group", Json()) != item.index ||
        line.value("sample", Json()) != sample ||
        line.value("prompt_tokens", Json()) != item.prompt.prompt.tokens)
      return false;
    if (sample == 0) record.before.emplace_back();
    record.before.back().samples.push_back(trajectory_from_json(line, out, {}));
    return true;
  };
  SharedResults results(
      mpi, comm, kWaitSeconds,
      {.file = out,
       .items = validation.items(),
       .lines_of = [&](size_t item) { return static_cast<size_t>(validation.item(item).samples); },
       .belongs = belongs,
       .settings = settings});
  record.begun = results.begun();
  record.before.resize(std::min(record.before.size(), record.begun));  // the last one may be a part
  record.made = [&](size_t item, const Group& group) {
    std::string text;
    for (const Trajectory& t : group.samples)
      text += dump_json_line(result_line(t, validation.item(item).set)) + "\n";
    results.put(item, std::move(text));
  };
  const std::optional<Validation::Result> made = validation.run(0, record);
  results.finish();
  return made->metrics;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// All ranks, whatever their roles in a run: shared as the trainer's, or whole where they do not divide so.
RolePlan eval_role(const RunPlan& plan, int ranks) {
  RolePlan role = plan.trainer();
  role.ranks = all_ranks(ranks);
  role.zero = 1;
  role.split(Axis::cp, 1);
  role.take_stages(role.whole_stages());
  if (ranks % role.team_size() != 0) {
    role.split(Axis::tp, 1);
    role.take_stages({{{0, role.parts().back().end}}});
  }
  role.fit_experts();
  return role;
}

/// Those that model.path says, or of --checkpoint.
ModelSource eval_weights(const CommandLine& line, const Config& config, const RunPlan& plan, Comm& comm) {
  ModelSource source = first_weights(config, plan);
  if (!line.has("--checkpoint")) return source;
  source.checkpoint = shared_checkpoint(line.text("--checkpoint"), comm);
  source.random = false;
  const ModelSource of_run = checkpoint_source(source.checkpoint, source.folder);
  source.adapters = of_run.adapters;
  source.digest = of_run.digest;  // model.digest is of the weights that the run began with
  source.digest_from = of_run.digest_from;
  return source;
}

Watch::Options watch_options(const Config& config) {
  return {.limit_seconds = config.cluster.watchdog_seconds,
          .report_file = "",
          .has_checkpoint = [] { return false; },
          .tell_seconds = progress_interval(config.log.progress_seconds),
          .tell = log_progress};
}

/// `samples`: of each response a line is asked for.
void require_work(const RunPlan& plan, bool samples) {
  if (!plan.validation.generates && !plan.validation.loss)
    fail(Exit::usage, {.what = "nothing to evaluate",
                       .where = "validation.data",
                       .why = "the list is empty",
                       .fix = "name a JSONL file in validation.data"});
  if (!plan.validation.generates && samples)
    fail(Exit::usage, {.what = "no samples to write",
                       .where = "--out",
                       .why = "without reward.functions nothing is generated, the loss alone is measured",
                       .fix = "leave --out away, or set reward.functions and rollout.max_new_tokens"});
}

std::optional<RewardSet> rewards_of_run(const Config& config, Helpers* programs) {
  std::optional<RewardSet> rewards;
  if (!config.rollout.harness.empty()) rewards.emplace();  // programs that play sessions say what they earn
  if (!config.reward.functions.empty()) rewards.emplace(config.reward, programs);
  return rewards;
}

}  // namespace

int run_eval(const CommandLine& line) {
  LoadedConfig loaded = load_config(line.positional, line.overrides);
  leave_epochs(loaded);
  const Config& config = loaded.config;
  require_paths(loaded, {"data.train", "checkpoint.resume", "log.command"});
  std::optional<Helpers> helpers;
  if (starts_programs(config)) helpers.emplace();  // before there are threads
  Watch watch(watch_options(config));
  MpiSession mpi(nullptr, nullptr);
  const double wait_limit = watch.connect(mpi);
  const std::unique_ptr<Comm> comm = mpi.make_comm_of_all(wait_limit);
  const int64_t gpu_bytes = gpu_bytes_per_rank(mpi, resolve_device(loaded, *comm), *comm);
  const RunPlan plan = make_plan(loaded, mpi.size(), read_run_models(config),
                                 {{gpu_bytes, "its share of the GPU"}, share_of_host(mpi.ranks_on_node())});
  require_free_host_memory(plan, mpi.ranks_on_node());
  require_work(plan, line.has("--out"));
  start_log("", config.log.level, mpi.rank(), mpi.rank() == 0);
  const TextTools text = load_text_tools(config);
  std::optional<int64_t> threads = config.run.threads;
  if (line.has("--threads")) threads = line.integer("--threads", 1);
  const Device device = take_device(mpi, plan.device, *comm, true, config.cluster.shared_gpus == "allow");
  const std::unique_ptr<Comm> neighbours = mpi.make_comm_of_host(wait_limit);
  ModelHost host(device, plan.dtype, rank_threads(*neighbours, threads).number);
  const RolePlan role = eval_role(plan, mpi.size());
  Mesh mesh(mpi, role.ranks, role.grid, device, wait_limit);
  ModelShare share = share_of(role, mpi.rank(), &mesh);
  share.options.with_gradients = false;
  const auto model = host.load(eval_weights(line, config, plan, *comm), share.options, comm.get());
  if (const std::string lost = lost_end_tokens_text(model->config(), text.tokenizer->eos_id()); !lost.empty())
    log::warn("{}", lost);
  enter_phase(ValidationRole::kPhase);
  const auto stops = [] { return false; };
  Json result = Json::object();
  const auto add = [&](const std::map<std::string, double>& metrics) { result.update(Json(metrics)); };
  if (plan.validation.loss)
    add(*HeldOutLoss({config, plan, host.ctx(), *model, *comm, mesh.control(Axis::dp),
                      pass_options(config, plan, role), share.pipeline, *text.tokenizer, text.chat_template(),
                      stops})
             .run());
  if (plan.validation.generates) {
    Engine engine(*model, engine_options(config, plan, share), host.ctx().lane, share.pipeline);
    Helpers* const programs = helpers ? &*helpers : nullptr;
    const std::optional<RewardSet> rewards = rewards_of_run(config, programs);
    Validation validation({config,
                           plan,
                           *comm,
                           {role.team_number(mpi.rank()), role.teams()},
                           {host.ctx(), engine, *text.tokenizer, rewards ? &*rewards : nullptr, share.team},
                           model->config(),
                           text.chat_template(),
                           stops,
                           programs});
    const Json settings = settings_of(config, host, text, validation);
    add(evaluate(validation, line.text("--out"), settings, mpi, *comm));
  }
  log_progress("");  // else it stands before the result
  if (comm->rank() == 0) write_results(dump_json_line(result) + "\n");
  return static_cast<int>(Exit::ok);
}

}  // namespace temper

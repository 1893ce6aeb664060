#include "src/run/session/run_rank.h"

#include <limits>

#include "src/core/log.h"
#include "src/core/process/stop_signal.h"
#include "src/run/plan/memory/memory.h"

namespace temper {
namespace {

/// A start makes at least one step: a time limit that is shorter would stop it at the same place for ever.
std::string why_stop(const RunRank& rank) {
  const auto& limit = rank.config().run.time_limit_seconds;
  if (stop_requested()) return stop_signal_name();
  const bool over = limit && rank.age.seconds() > *limit;
  return over && rank.trains() && rank.links.end.trained() > rank.files.resume.step ? "run.time_limit" : "";
}

RankThreads threads_of(const RunTask& task, const MpiSession& mpi, bool computes, Comm& world) {
  const double wait_limit = computes ? task.wait_limit() : std::numeric_limits<double>::infinity();
  const std::unique_ptr<Comm> neighbours = mpi.make_comm_of_host(wait_limit);
  const RankThreads own = rank_threads(*neighbours, task.config().run.threads, computes);
  return {own.number, describe_threads(world, own, computes)};
}

}  // namespace

RunRank::RunRank(const RunTask& run_task, const MpiSession& mpi, std::span<const RoleRow> rows)
    : task(run_task),
      mpi_rank(mpi.rank()),
      placement(place_roles(task, rows, mpi.rank())),
      trace(mpi.rank(), task.plan.profiled_steps),
      links(task, mpi, placement, [this] { return why_stop(*this); }),
      threads(threads_of(task, mpi, !placement.roles.empty(), *links.world)),
      inputs(task, placement, *links.world),
      files(task, placement, inputs, links),
      standings(run_task.config()) {
  if (const ResumePoint& at = files.resume; !at.standings.empty())
    standings.restore(at.standings, fmt::format("{}: meta.{}", at.checkpoint, kStandings));
  trace.start(*links.world);
  if (!placement.roles.empty()) {
    host = std::make_unique<ModelHost>(links.device, task.plan.dtype, threads.number);
    build_roles();
  }
  own_weights = agree_on_inputs(own_weights_here(), *links.world);
}

void RunRank::connect_weights() {
  if (task.replay()) return;
  const Model* const generates = models->generating();
  links.weights.connect(trains() ? &policy->parameters() : nullptr,
                        generates ? &generates->parameters() : nullptr);
}

void RunRank::lend_memory() {
  host->ctx().scratch.trim(host->ctx().lane);
  models->suspend_engines();
}

/// How fast the policy's weights came is a metric of the first step.
void RunRank::load_policy() {
  const Stopwatch watch;
  policy = &models->of(trains() ? task.plan.trainer() : *task.plan.generator());
  if (generates()) models->of(*task.plan.generator());
  if (config().model.init == "random") return;
  const double seconds = watch.seconds();
  const double gigabytes = 1e-9 * static_cast<double>(policy->parameters().value_bytes());
  log::info("loaded {:.3f} GB of weights in {:.2f} s, {:.2f} GB/s", gigabytes, seconds, gigabytes / seconds);
  journal->set("perf/load_weights_gb_per_s", gigabytes / seconds);
}

RoleParts RunRank::role_parts() {
  return {.task = task,
          .inputs = inputs.digests,
          .ctx = host->ctx(),
          .models = *models,
          .end = links.end,
          .groups = links.groups,
          .weights = links.weights,
          .journal = *journal,
          .memory = *memory,
          .trace = trace,
          .tokenizer = inputs.text.tokenizer.get(),
          .chat = inputs.text.chat_template(),
          .prompts = inputs.prompts.get(),
          .rewards = inputs.rewards.get(),
          .lead = {0, last_step(), files.resume.produced}};
}

void RunRank::build_roles() {
  const bool produces = placement.has(Duty::produces);
  memory = std::make_unique<MemoryLedger>(process_bytes(task.plan, mpi_rank));
  Arena& scratch = host->ctx().scratch;
  memory->add(scratch.device(), [&scratch] { return scratch.held_bytes(); });
  journal = std::make_unique<Journal>(last_step(), files.resume.step - (files.resume.unsaid ? 1 : 0));
  models = std::make_unique<ModelPool>(config(), task.plan, links.meshes, *host, *memory, mpi_rank);
  if (trains() || produces) load_policy();
  RoleParts parts = role_parts();
  for (const PlacedRole& role : placement.roles) {
    parts.portion = role.portion;
    parts.lead.lag = role.ahead ? task.lag() : 0;
    parts.stage = role.stage;
    parts.role = role.row->model_of ? task.plan.role(role.row->model_of) : nullptr;
    parts.model_share = parts.role ? links.meshes.share_of(*parts.role) : ModelShare();
    roles.push_back(role.row->make(parts));
  }
}

InputDigests RunRank::own_weights_here() const {
  InputDigests read;
  for (const PlacedRole& role : placement.roles) {
    const char* const name = role.row->model_of;
    const auto path = name ? config().roles.of(name).path : std::nullopt;
    if (!path) continue;
    models->of(*task.plan.role(name));
    read.add(fmt::format("roles.{}.path", name), "weights", host->weights(*path));
  }
  return read;
}

}  // namespace temper

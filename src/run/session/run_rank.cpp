#include "src/run/session/run_rank.h"

#include <cstdlib>
#include <limits>
#include <numeric>

#include "src/config/load.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/core/process/stop_signal.h"
#include "src/rl/trajectory_json.h"
#include "src/run/host/gpu.h"
#include "src/run/host/rank_threads.h"
#include "src/run/plan/memory/memory.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/run_log.h"
#include "src/run/session/older_weights.h"

namespace temper {
namespace {

/// A rank without roles waits for the whole run.
double wait_limit(const RunTask& task, bool idle) {
  return idle ? std::numeric_limits<double>::infinity() : task.wait_limit();
}

std::vector<int> all_ranks(const MpiSession& mpi) {
  std::vector<int> all(static_cast<size_t>(mpi.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// The trainer's ranks first: the first of them writes what is one rank's to write.
std::unique_ptr<Comm> make_keepers(const MpiSession& mpi, const RoleRanks& ranks, double wait_limit) {
  const int rank = mpi.rank();
  if (ranks.keepers == ranks.trainer) return nullptr;
  const bool keeps = std::binary_search(ranks.keepers.begin(), ranks.keepers.end(), rank);
  return mpi.make_comm(keeps ? 0 : -1, ranks.trains(rank) ? rank : mpi.size() + rank, wait_limit);
}

/// A start makes at least one step: a time limit that is shorter would stop it at the same place for ever.
std::string why_stop(const RunRank& rank) {
  const auto& limit = rank.config().run.time_limit_seconds;
  if (stop_requested()) return stop_signal_name();
  const bool over = limit && rank.age.seconds() > *limit;
  return over && rank.trains() && rank.end.trained() > rank.resume.step ? "run.time_limit" : "";
}

}  // namespace

RunRank::RunRank(const RunTask& run_task, const MpiSession& mpi, std::span<const RoleRow> rows)
    : task(run_task),
      mpi_rank(mpi.rank()),
      placement(place_roles(task, rows, mpi.rank())),
      trace(mpi.rank(), task.plan.profiled_steps),
      world(mpi.make_comm_of_all(wait_limit(task, placement.roles.empty()))),
      device(take_device(mpi, task.plan.device, *world, !placement.roles.empty(),
                         config().cluster.shared_gpus == "allow")),
      meshes(mpi, task.plan, device, task.wait_limit()),
      trainers(task.plan.trains(mpi_rank) ? &meshes.trainer().control(AxisSet::all()) : nullptr),
      other_keepers(make_keepers(mpi, placement.ranks, task.wait_limit())),
      keepers(other_keepers ? other_keepers.get() : trainers),
      mailbox(mpi.make_mailbox(task.wait_limit())),
      end(*mailbox, placement.ranks, all_ranks(mpi), [this] { return why_stop(*this); }),
      groups(*mailbox, placement.ranks, task.plan.max_policy_lag, end),
      weights(*mailbox, weight_routes(task, placement.ranks), task.lag(), end) {
  if (device == Device::cuda && config().cluster.shared_gpus == "error")
    require_free_memory(task.plan, mpi.rank());
  enter_phase(Phase::load);
  const bool idle = placement.roles.empty();
  const std::unique_ptr<Comm> neighbours = mpi.make_comm_of_host(wait_limit(task, idle));
  const RankThreads share = rank_threads(*neighbours, config().run.threads, !idle);
  threads = describe_threads(*world, share, !idle);
  if (!idle) load_data();
  inputs = agree_on_inputs(read_inputs(), *world);
  open_folder(mpi.rank());
  find_start();
  if (idle) return;
  host = std::make_unique<ModelHost>(device, task.plan.dtype, share.number);
  build_roles();
}

/// Tokenizer, prompts and rewards: bad data ends the run before it has a folder.
void RunRank::load_data() {
  if (!task.replay() || has_tokenizer(tokenizer_folder(config()))) text = load_text_tools(config());
  if (!config().reward.functions.empty())
    rewards = std::make_unique<RewardSet>(config().reward, task.helpers);
  if (task.replay()) require_responses(task.replay_files);
  if (task.replay() || !placement.has(Duty::produces)) return;
  const bool sft = !task.plan.generates;
  prompts = std::make_unique<PromptStream>(
      config().data.train, config().data, config().run.seed, *text.tokenizer, text.chat_template(),
      PromptStream::Limits{task.plan.max_prompt_tokens, task.plan.longest_sequence, sft,
                           task.plan.vocab_size});
  prompts->check_all([&](const std::string& answer, const std::string& where) {
    if (!sft) rewards->check_answer(answer, where);
  });
}

/// What this rank has read. The prompts of a validation are read when its role is made.
InputDigests RunRank::read_inputs() const {
  InputDigests read;
  for (const auto& [key, files] : task.model_files) read.add_folder(key, files);
  for (const auto& [name, file] : text.files()) read.add("tokenizer.path", name, file);
  if (prompts) read.add_list("data.train", prompts->digests());
  std::vector<FileDigest> held_out;
  const bool validates = task.plan.validates || task.plan.validates_loss;
  if (trains() && validates && config().validation.every > 0 && !task.replay())
    for (const DataSource& source : config().validation.data) held_out.push_back(digest_of_file(source.path));
  read.add_list("validation.data", held_out);
  return read;
}

void RunRank::open_folder(int rank) {
  if (writes()) {
    folder = std::make_unique<RunFolder>(config().run.dir, config().run.name);
    make_directories(folder->path("logs"));
  }
  world->barrier("run folder opened by the first trainer rank");
  trace.start(*world);
  const std::string root = join_path(config().run.dir, config().run.name);
  checkpoints = join_path(root, "checkpoints");
  start_log(rank_log_file(root, rank), config().log.level, rank, writes());
}

/// The first trainer rank looks, all ranks of the world get to know it.
void RunRank::find_start() {
  std::string checkpoint_path;
  if (writes()) {
    const RunStart start = find_run_start(task, *folder, inputs);
    found = start.finds;
    checkpoint_path = start.checkpoint;
  }
  checkpoint_path =
      world->broadcast(checkpoint_path, placement.ranks.trainer.front(), "checkpoint to resume from");
  if (checkpoint_path.empty()) return;
  const CheckpointReader checkpoint(checkpoint_path);
  resume = {checkpoint_path, checkpoint.step(), checkpoint.step(), checkpoint.step()};
  if (checkpoint.has_meta(kUnsaid)) resume.unsaid = checkpoint.text(kUnsaid);
  if (!task.replay()) resume.weights = oldest_weights(checkpoint);
  while (checkpoint.has(ahead_name(resume.produced + 1))) ++resume.produced;
  if (task.helpers) remember_verdicts();
}

/// Reads the verdicts of the steps that are made again, before their files are removed. What a file does not
/// give is asked for again.
void RunRank::remember_verdicts() {
  const std::string rollouts = join_path(join_path(config().run.dir, config().run.name), "rollouts");
  const size_t number = std::string_view("step-").size();
  if (placement.has(Duty::produces) && is_directory(rollouts))
    for (const std::string& name : list_directory(rollouts)) {
      if (name.size() <= number || std::atoll(name.c_str() + number) <= resume.produced) continue;
      try {
        rewards->remember(join_path(rollouts, name));
      } catch (const Error& e) {
        log::warn("verdicts of {} cannot be read: {}", join_path(rollouts, name), e.problem().why);
      }
    }
  world->barrier("verdicts of reward programs read by all ranks");
}

void RunRank::connect_weights() {
  if (task.replay()) return;
  const Model* const generates = models->generating();
  weights.connect(trains() ? &policy->parameters() : nullptr, generates ? &generates->parameters() : nullptr);
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
          .ctx = host->ctx(),
          .models = *models,
          .end = end,
          .groups = groups,
          .weights = weights,
          .journal = *journal,
          .memory = *memory,
          .trace = trace,
          .tokenizer = text.tokenizer.get(),
          .chat = text.chat_template(),
          .prompts = prompts.get(),
          .rewards = rewards.get(),
          .lead = {0, last_step(), resume.produced}};
}

void RunRank::build_roles() {
  const bool produces = placement.has(Duty::produces);
  memory = std::make_unique<MemoryLedger>(process_bytes(task.plan, world->rank()));
  Arena& scratch = host->ctx().scratch;
  memory->add(scratch.device(), [&scratch] { return scratch.held_bytes(); });
  journal = std::make_unique<Journal>(last_step(), resume.step - (resume.unsaid ? 1 : 0));
  models = std::make_unique<ModelPool>(config(), task.plan, meshes, *host, *memory, mpi_rank);
  if (trains() || produces) load_policy();
  RoleParts parts = role_parts();
  for (const PlacedRole& role : placement.roles) {
    parts.share = role.share;
    parts.lead.lag = role.ahead ? task.lag() : 0;
    parts.stage = role.stage;
    parts.role = role.row->model_of ? task.plan.role(role.row->model_of) : nullptr;
    parts.model_share = parts.role ? meshes.share_of(*parts.role) : ModelShare();
    roles.push_back(role.row->make(parts));
  }
}

}  // namespace temper

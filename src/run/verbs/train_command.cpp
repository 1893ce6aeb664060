#include "src/run/verbs/train_command.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/comm/mesh.h"
#include "src/core/stop_signal.h"
#include "src/io/hf_export.h"
#include "src/models/parameter_specs.h"
#include "src/ops/backend.h"
#include "src/rl/registry.h"
#include "src/run/plan/sampling_options.h"
#include "src/run/record/gradient_dump.h"
#include "src/run/record/run_log.h"
#include "src/run/roles/validation.h"
#include "src/run/session/run_state.h"
#include "src/run/session/setup.h"
#include "src/run/verbs/check_command.h"

namespace temper {
namespace {

constexpr size_t kReferenceStage = 0;

/// World ranks that hand groups to each other.
RoleRanks role_ranks(const RunPlan& plan, bool replay) {
  const std::vector<int>& trainer = plan.role(RoleKind::trainer)->ranks;
  const RolePlan *rollout = plan.role(RoleKind::rollout), *reference = plan.role(RoleKind::reference);
  RoleRanks ranks{rollout && !replay ? rollout->ranks : trainer, {}, trainer};
  if (reference) ranks.stages.push_back(reference->ranks);
  return ranks;
}

/// The place of a rank among those of a role; nothing when it has not this role.
std::optional<Share> share_of(const std::vector<int>& ranks, int rank) {
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end() || *at != rank) return std::nullopt;
  return Share{at - ranks.begin(), static_cast<int64_t>(ranks.size())};
}

/// Everything a run is made of, in the order in which it is built; members below use those above.
class TrainRun {
 public:
  TrainRun(const CommandLine& line, const LoadedConfig& loaded, const RunPlan& plan, MpiSession& mpi)
      : line_(line),
        loaded_(loaded),
        plan_(plan),
        rank_(mpi.rank()),
        replay_files_(line.list("--replay")),
        trace_(mpi.rank(), plan.profiled_steps) {
    std::vector<int> world(static_cast<size_t>(mpi.size()));
    std::iota(world.begin(), world.end(), 0);
    const RoleRanks ranks = role_ranks(plan, replay());
    producer_ = share_of(ranks.producers, rank_);
    if (!ranks.stages.empty()) reference_ = share_of(ranks.stages[kReferenceStage], rank_);
    const bool idle = !producer_ && !reference_ && !share_of(ranks.trainer, rank_);
    world_ =
        mpi.make_comm(world, idle ? std::numeric_limits<double>::infinity()  // it waits for the whole run
                                  : config().cluster.watchdog_seconds);
    dp_ = mpi.make_comm(ranks.trainer, config().cluster.watchdog_seconds);
    mesh_ =
        std::make_unique<Mesh>(mpi, ranks.trainer, MeshShape{.dp = static_cast<int>(ranks.trainer.size())},
                               Device::cpu, config().cluster.watchdog_seconds);
    mailbox_ = mpi.make_mailbox(config().cluster.watchdog_seconds);
    end_ = std::make_unique<EndOfRun>(*mailbox_, ranks);
    groups_ = std::make_unique<GroupExchange>(*mailbox_, ranks, plan.max_policy_lag, *end_);
    weights_ = std::make_unique<WeightSync>(*mailbox_, ranks, *end_);
    if (!idle) load_data();
    open_folder();
    find_start();
    if (idle) return;
    threads_ = resolve_threads(config().run.threads, mpi.ranks_on_node());
    backend_ = std::make_unique<Backend>(Device::cpu, threads_);
    load_models();
    build_roles();
  }

  int run() {
    bool stopped = false;
    if (!roles_.empty()) {
      install_stop_signals();
      start();
      stopped = run_steps();
    }
    trace_.write(*world_, folder_ ? folder_->path("trace") : "");
    world_->barrier("end of the run");
    return static_cast<int>(stopped ? Exit::retry : Exit::ok);
  }

 private:
  const Config& config() const { return loaded_.config; }
  bool replay() const { return !replay_files_.empty(); }
  int64_t last_step() const { return replay() ? static_cast<int64_t>(replay_files_.size()) : plan_.steps; }
  int64_t lag() const { return replay() ? 0 : plan_.max_policy_lag; }
  bool writes() const { return dp_ && dp_->rank() == 0; }

  /// True when the run was stopped before the last step. Ranks without the trainer role are told of the end
  /// by the exchange.
  bool run_steps() {
    for (int64_t step = resume_.step + 1; step <= last_step(); ++step) {
      const Stopwatch watch;
      for (auto& role : roles_)
        if (!role->phase(step)) return true;
      if (!dp_) continue;
      if (validation_ && (step % config().validation.every == 0 || step == last_step()))
        validation_->run(step);
      finish_step(step, watch.seconds());
      const bool stopped = should_stop() && step < last_step();
      if (!stopped && step < last_step()) publish(step);
      save(step, stopped);
      if (!stopped) continue;
      end_->tell();  // not before: the checkpoint takes steps that others are still at work on
      return true;
    }
    return false;
  }

  void publish(int64_t step) {
    const TraceSpan span(trace_, step, "trainer", fmt::format("send weights {}", step));
    const PhaseTimer timer(*journal_, "sync_weights");  // a part of the next step
    if (writes())
      for (const int rank : plan_.weight_receivers())
        trace_.arrow(step, "trainer", weights_arrow(step, rank), Trace::Arrow::begins);
    weights_->publish(model_->parameters(), step);
  }

  void save(int64_t step, bool stopped) {
    if (replay()) return;
    const TraceSpan span(trace_, step, "trainer", "checkpoint and export");
    const CheckpointConfig& c = config().checkpoint;
    const bool last = stopped || step == last_step();
    if (last || (c.every > 0 && step % c.every == 0)) {
      RunState state{&trainer_->trainer(), trainer_->data_position(), {}, nullptr};
      // A checkpoint made with a larger lag may have brought more.
      const int64_t produced = std::max(std::min(step + lag(), last_step()), resume_.produced);
      if (reference_role_) reference_role_->work_until(produced);
      for (int64_t s = step + 1; s <= produced; ++s) {
        state.ahead.push_back(&groups_->peek(s));
        state.data_position = state.ahead.back()->note.data_position;
      }
      state.unfinished = &groups_->unfinished_after(produced);
      save_run(checkpoints_, step, state, *services_);
    }
    if (c.export_hf_every > 0 && (step % c.export_hf_every == 0 || (last && !stopped))) export_step(step);
    if (last) spdlog::info("saved {}", join_path(checkpoints_, RunFolder::step_name(step)));
  }

  void open_folder() {
    if (writes()) {
      folder_ = std::make_unique<RunFolder>(config().run.dir, config().run.name);
      const CheckpointConfig& c = config().checkpoint;
      if (folder_->has_run() && c.resume == "none" && !config().run.overwrite)
        fail(Exit::usage,
             {.what = "the run folder holds a run",
              .where = folder_->path(""),
              .why = "checkpoint.resume = \"none\" would write over it",
              .fix = "choose another run.name, set run.overwrite = true, or checkpoint.resume = \"auto\""});
      if (replay() && !list_checkpoints(folder_->path("checkpoints")).empty() && !config().run.overwrite)
        fail(Exit::usage, {.what = "the run folder holds a run with checkpoints",
                           .where = folder_->path(""),
                           .why = "a replay starts at step 1 and would remove them",
                           .fix = "choose another run.name for the replay, or set run.overwrite = true"});
      make_directories(folder_->path("logs"));
      write_file_atomic(folder_->path("config.toml"), dump_config(loaded_));
    }
    world_->barrier("run folder opened by the first trainer rank");
    trace_.start();
    const std::string root = join_path(config().run.dir, config().run.name);
    checkpoints_ = join_path(root, "checkpoints");
    start_log(join_path(root, fmt::format("logs/rank-{:04d}.log", rank_)), config().log.level, rank_,
              writes());
  }

  /// Where the run goes on from: the first trainer rank looks, all ranks of the world get to know it.
  void find_start() {
    const std::string& resume = config().checkpoint.resume;
    if (dp_ && !replay() && resume == "auto") checkpoint_ = find_checkpoint(checkpoints_, *dp_);
    if (dp_ && !replay() && resume != "auto" && resume != "none")
      checkpoint_ = sound_checkpoint(resume, *dp_);
    checkpoint_ = world_->broadcast(checkpoint_, plan_.role(RoleKind::trainer)->ranks.front(),
                                    "checkpoint to resume from");
    if (!checkpoint_.empty()) resume_ = read_resume_point(checkpoint_);
  }

  /// State of the checkpoint, first version of the weights; truncates the run folder to the step.
  void start() {
    std::map<int64_t, StepInput> ahead;
    std::vector<Group> unfinished;
    if (!checkpoint_.empty() && (dp_ || producer_)) unfinished = read_unfinished(checkpoint_);
    if (rollout_role_) rollout_role_->set_unfinished(unfinished);
    if (!checkpoint_.empty() && dp_) {
      ahead = restore_run(checkpoint_, trainer_->trainer(), *services_);
      spdlog::info("resumed from {}, step {}{}", checkpoint_, resume_.step,
                   resume_.step >= last_step() ? ": nothing is left to do" : "");
    }
    if (prompts_) prompts_->set_position(resume_.data_position);
    groups_->start(resume_.step, resume_.produced);
    for (auto& [step, input] : ahead) groups_->put_back(step, std::move(input));
    groups_->put_back_unfinished(resume_.produced, std::move(unfinished));
    weights_->start(resume_.step);
    if (!dp_) return;
    if (folder_) folder_->truncate_to(resume_.step);
    dp_->barrier("run folder truncated by the first trainer rank");
    *journal_ = Journal(folder_.get(), last_step());
    if (resume_.step < last_step()) weights_->publish(model_->parameters(), resume_.step);
    spdlog::info("{} parameters, {} ranks, {} threads each, {}, {} updates in all; {}",
                 model_->parameters().num_parameters(), plan_.num_ranks, threads_, dtype_name(plan_.dtype),
                 plan_.batch.updates_total, make_algorithm(config().algorithm)->describe());
    const std::string changed = changed_sampling_text(config().rollout);
    if (plan_.generates && !replay() && !changed.empty()) spdlog::warn("{}", changed);
  }

  /// Tokenizer, prompts and rewards: bad data ends the run before it has a folder.
  void load_data() {
    const std::string tokenizer = config().tokenizer.path.value_or(config().model.path);
    if (!replay() || has_tokenizer(tokenizer)) {
      tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::load(tokenizer));
      chat_ = load_chat_template(tokenizer, config().tokenizer.chat_template.value_or(""));
    }
    if (replay() || !producer_) return;
    const bool sft = plan_.algorithm == "sft";
    prompts_ = std::make_unique<PromptStream>(
        config().data.train, config().data, config().run.seed, *tokenizer_, chat_ ? &*chat_ : nullptr,
        PromptStream::Limits{plan_.max_prompt_tokens, plan_.longest_sequence, sft});
    std::optional<RewardSet> rewards;
    if (!sft) rewards.emplace(config().reward);
    prompts_->check_all([&](const std::string& answer, const std::string& where) {
      if (rewards) rewards->check_answer(answer, where);
    });
  }

  void load_models() {
    const bool random = config().model.init == "random";
    if (dp_ || producer_)
      model_ = load_model(config().model.path, plan_.dtype, plan_.context_tokens, dp_ != nullptr, random,
                          config().run.seed);
    if (reference_)
      frozen_ = load_model(config().model.path, plan_.dtype, plan_.context_tokens, false, random,
                           config().run.seed);
  }

  void build_roles() {
    journal_ = std::make_unique<Journal>(nullptr, last_step());
    services_ = std::make_unique<Services>(Services{
        loaded_, plan_, dp_.get(), dp_ ? &mesh_->on(Axis::dp) : nullptr, backend_->ctx(), *journal_, *end_,
        *groups_, *weights_, model_ ? *model_ : *frozen_, tokenizer_.get(), prompts_.get(), trace_});
    const bool validates = dp_ && plan_.validates && config().validation.every > 0 && !replay();
    if (validates || (producer_ && plan_.generates && !replay()))
      engine_ = std::make_unique<Engine>(*model_, engine_options(config(), plan_), backend_->ctx().lane);
    if (producer_) roles_.push_back(make_producer());
    // A reference rank that does not generate takes a step when the trainer needs it: it must not wait for
    // groups ahead.
    if (reference_) {
      auto role = std::make_unique<ReferenceRole>(*services_, *frozen_, kReferenceStage,
                                                  Lead{producer_ ? lag() : 0, last_step(), resume_.produced});
      reference_role_ = role.get();
      roles_.push_back(std::move(role));
    }
    if (!dp_) return;
    auto trainer = std::make_unique<TrainRole>(*services_, replay());
    trainer_ = trainer.get();
    if (line_.has("--dump-gradients"))
      trainer_->trainer().set_gradient_hook(
          gradient_dump(line_.text("--dump-gradients"), mesh_->on(Axis::dp)));
    roles_.push_back(std::move(trainer));
    if (validates)
      validation_ = std::make_unique<Validation>(*services_, *engine_, chat_ ? &*chat_ : nullptr);
  }

  std::unique_ptr<Role> make_producer() {
    if (replay()) return std::make_unique<ReplayRole>(*services_, replay_files_);
    if (plan_.algorithm == "sft") return std::make_unique<DataRole>(*services_);
    auto role = std::make_unique<RolloutRole>(*services_, *engine_, *producer_,
                                              Lead{lag(), last_step(), resume_.produced});
    rollout_role_ = role.get();
    return role;
  }

  void finish_step(int64_t step, double seconds) {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    journal_->set("timing_s/step", seconds);
    journal_->set("perf/time_per_step", seconds);
    journal_->set("perf/cpu_memory_used_gb", static_cast<double>(usage.ru_maxrss) / 1048576.0);
    journal_->set("perf/throughput", journal_->value("perf/total_num_tokens") / seconds / plan_.num_ranks);
    spdlog::info("{}", journal_->finish_step(step));
  }

  /// One decision for all trainer ranks: a signal on any rank that was heard of, or the time limit.
  bool should_stop() {
    const auto& limit = config().run.time_limit_seconds;
    const bool mine = stop_requested() || trainer_->stop_requested() || (limit && start_.seconds() > *limit);
    return dp_->all_reduce_max(mine ? 1.0 : 0.0, "stop request, max over trainer ranks") > 0;
  }

  void export_step(int64_t step) {
    if (writes()) {
      const std::string out = folder_->path("export/" + RunFolder::step_name(step));
      if (path_exists(out)) remove_tree(out);
      make_directories(folder_->path("export"));
      export_model(config().model.path, parameter_specs(model_->config()), store_reader(model_->parameters()),
                   out, {});
      spdlog::info("exported {}", out);
    }
    dp_->barrier("export written by the first trainer rank");
  }

  const CommandLine& line_;
  const LoadedConfig& loaded_;
  const RunPlan& plan_;
  int rank_;
  std::vector<std::string> replay_files_;
  Stopwatch start_;
  Trace trace_;
  std::unique_ptr<Comm> world_, dp_;  // dp_: on trainer ranks
  std::unique_ptr<Mesh> mesh_;
  std::optional<Share> producer_, reference_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<EndOfRun> end_;
  std::unique_ptr<GroupExchange> groups_;
  std::unique_ptr<WeightSync> weights_;
  std::unique_ptr<RunFolder> folder_;     // first trainer rank
  std::string checkpoints_, checkpoint_;  // of the run; the one to go on from, or none
  ResumePoint resume_;
  int threads_ = 1;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::unique_ptr<Model> model_, frozen_;
  std::unique_ptr<PromptStream> prompts_;
  std::unique_ptr<Engine> engine_;  // rollout and validation use one after the other
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Services> services_;
  std::vector<std::unique_ptr<Role>> roles_;
  RolloutRole* rollout_role_ = nullptr;
  ReferenceRole* reference_role_ = nullptr;
  TrainRole* trainer_ = nullptr;
  std::unique_ptr<Validation> validation_;
};

}  // namespace

int run_train(const CommandLine& line) {
  const LoadedConfig loaded = load_config(line.positional, line.overrides);
  std::vector<std::string> unused;
  if (line.has("--replay")) unused = {"data.train", "validation.data", "checkpoint.resume"};
  require_paths(loaded, unused);
  MpiSession mpi(nullptr, nullptr);
  const RunPlan plan = make_plan(loaded, mpi.size(), read_model_facts(loaded.config.model.path));
  return TrainRun(line, loaded, plan, mpi).run();
}

}  // namespace temper

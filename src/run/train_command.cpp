#include "src/run/train_command.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <chrono>
#include <numeric>

#include "src/comm/mpi_comm.h"
#include "src/io/hf_export.h"
#include "src/models/dense_specs.h"
#include "src/rl/registry.h"
#include "src/run/check_command.h"
#include "src/run/gradient_dump.h"
#include "src/run/run_log.h"
#include "src/run/run_state.h"
#include "src/run/setup.h"
#include "src/run/stop_signal.h"
#include "src/run/validation.h"

namespace temper {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Everything a run is made of, in the order in which it is built; members below use those above.
class TrainRun {
 public:
  TrainRun(const CommandLine& line, const LoadedConfig& loaded, const RunPlan& plan, MpiSession& mpi)
      : line_(line), loaded_(loaded), plan_(plan), start_(Clock::now()) {
    std::vector<int> world(static_cast<size_t>(mpi.size()));
    std::iota(world.begin(), world.end(), 0);
    world_ = mpi.make_comm(world, config().cluster.watchdog_seconds);
    dp_ = mpi.make_comm(plan.role("trainer")->ranks, config().cluster.watchdog_seconds);
    open_folder(mpi.rank());
    if (!dp_) return;
    threads_ = resolve_threads(config().run.threads, mpi.ranks_on_node());
    ctx_ = std::make_unique<Ctx>(Ctx{arena_, Device::cpu, threads_});
    load_inputs();
    build_roles();
  }

  int run() {
    if (!dp_) {
      world_->barrier("end of the run (this rank has no role)");
      return static_cast<int>(Exit::ok);
    }
    const int64_t first = restore() + 1;
    install_stop_signals();
    int64_t step = first;
    bool stopped = false;
    for (; step <= last_step() && !stopped; ++step) {
      one_step(step);
      stopped = should_stop() && step < last_step();
      const CheckpointConfig& c = config().checkpoint;
      const bool last = step == last_step() || stopped;
      if (!replay() && (last || (c.every > 0 && step % c.every == 0)))
        save_run(checkpoints_, step, state(), *services_);
      if (c.export_hf_every > 0 && !replay() && (step % c.export_hf_every == 0 || (last && !stopped)))
        export_step(step);
      if (!replay() && last) spdlog::info("saved {}", join_path(checkpoints_, RunFolder::step_name(step)));
    }
    world_->barrier("end of the run");
    return static_cast<int>(stopped ? Exit::retry : Exit::ok);
  }

 private:
  const Config& config() const { return loaded_.config; }
  bool replay() const { return !replay_files_.empty(); }
  int64_t last_step() const { return replay() ? static_cast<int64_t>(replay_files_.size()) : plan_.steps; }
  RunState state() { return {&trainer_->trainer(), prompts_.get()}; }

  void open_folder(int rank) {
    replay_files_ = line_.list("--replay");
    if (rank == 0) {
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
    world_->barrier("run folder opened by rank 0");
    const std::string root = join_path(config().run.dir, config().run.name);
    checkpoints_ = join_path(root, "checkpoints");
    start_log(join_path(root, fmt::format("logs/rank-{:04d}.log", rank)), config().log.level, rank);
  }

  void load_inputs() {
    const std::string tokenizer = config().tokenizer.path.value_or(config().model.path);
    if (!replay() || has_tokenizer(tokenizer)) {
      tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::load(tokenizer));
      chat_ = load_chat_template(tokenizer, config().tokenizer.chat_template.value_or(""));
    }
    const bool random = config().model.init == "random";
    model_ =
        load_model(config().model.path, plan_.dtype, plan_.context_tokens, true, random, config().run.seed);
    if (plan_.needs_reference)
      frozen_ = load_model(config().model.path, plan_.dtype, plan_.context_tokens, false, random,
                           config().run.seed);
    if (!replay()) {
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
  }

  void build_roles() {
    journal_ = std::make_unique<Journal>(nullptr, last_step());
    exchange_ = std::make_unique<Exchange>(*dp_, 0);
    services_ = std::make_unique<Services>(Services{loaded_, plan_, *dp_, *ctx_, *journal_, *exchange_,
                                                    *model_, tokenizer_.get(), prompts_.get()});
    if (replay())
      roles_.push_back(std::make_unique<ReplayRole>(*services_, replay_files_));
    else if (plan_.algorithm == "sft")
      roles_.push_back(std::make_unique<DataRole>(*services_));
    else
      roles_.push_back(std::make_unique<RolloutRole>(*services_));
    if (frozen_) roles_.push_back(std::make_unique<ReferenceRole>(*services_, std::move(frozen_)));
    auto trainer = std::make_unique<TrainRole>(*services_, replay());
    trainer_ = trainer.get();
    if (line_.has("--dump-gradients"))
      trainer_->trainer().set_gradient_hook(gradient_dump(line_.text("--dump-gradients"), *dp_));
    roles_.push_back(std::move(trainer));
    if (plan_.validates && config().validation.every > 0 && !replay())
      validation_ = std::make_unique<Validation>(*services_, chat_ ? &*chat_ : nullptr);
  }

  /// The step that the run goes on from; truncates the run folder to it.
  int64_t restore() {
    int64_t step = 0;
    const std::string& resume = config().checkpoint.resume;
    std::string from;
    if (!replay() && resume == "auto") from = find_checkpoint(checkpoints_, *dp_);
    if (!replay() && resume != "auto" && resume != "none") from = sound_checkpoint(resume, *dp_);
    if (!from.empty()) {
      step = restore_run(from, state(), *services_);
      spdlog::info("resumed from {}, step {}{}", from, step,
                   step >= plan_.steps ? ": nothing is left to do" : "");
    }
    if (folder_) folder_->truncate_to(step);
    dp_->barrier("run folder truncated by rank 0");
    *exchange_ = Exchange(*dp_, step);
    *journal_ = Journal(folder_.get(), last_step());
    spdlog::info("{} parameters, {} ranks, {} threads each, {}, {} updates in all; {}",
                 model_->parameters().num_parameters(), dp_->size(), threads_, dtype_name(plan_.dtype),
                 plan_.batch.updates_total, make_algorithm(config().algorithm)->describe());
    return step;
  }

  void one_step(int64_t step) {
    const auto start = Clock::now();
    for (auto& role : roles_) role->phase(step);
    if (validation_ && (step % config().validation.every == 0 || step == last_step())) validation_->run(step);
    journal_->set("timing_s/step", seconds_since(start));
    struct rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    journal_->set("perf/time_per_step", seconds_since(start));
    journal_->set("perf/cpu_memory_used_gb", static_cast<double>(usage.ru_maxrss) / 1048576.0);
    journal_->set("perf/throughput",
                  journal_->value("perf/total_num_tokens") / seconds_since(start) / dp_->size());
    spdlog::info("{}", journal_->finish_step(step));
  }

  /// One decision for all ranks: a signal on any of them, or the time limit.
  bool should_stop() {
    const auto& limit = config().run.time_limit_seconds;
    const bool mine = stop_requested() || (limit && seconds_since(start_) > *limit);
    return dp_->all_reduce_max(mine ? 1.0 : 0.0, "stop request, max over ranks") > 0;
  }

  void export_step(int64_t step) {
    if (folder_) {
      const std::string out = folder_->path("export/" + RunFolder::step_name(step));
      if (path_exists(out)) remove_tree(out);
      make_directories(folder_->path("export"));
      export_model(config().model.path, dense_parameter_specs(model_->config()),
                   store_reader(model_->parameters()), out, {});
      spdlog::info("exported {}", out);
    }
    dp_->barrier("export written by rank 0");
  }

  const CommandLine& line_;
  const LoadedConfig& loaded_;
  const RunPlan& plan_;
  Clock::time_point start_;
  std::unique_ptr<Comm> world_, dp_;
  std::unique_ptr<RunFolder> folder_;  // rank 0
  std::string checkpoints_;
  std::vector<std::string> replay_files_;
  int threads_ = 1;
  Arena arena_;
  std::unique_ptr<Ctx> ctx_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::unique_ptr<Model> model_, frozen_;
  std::unique_ptr<PromptStream> prompts_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Services> services_;
  std::vector<std::unique_ptr<Role>> roles_;
  TrainRole* trainer_ = nullptr;
  std::unique_ptr<Validation> validation_;
};

}  // namespace

int run_train(const CommandLine& line) {
  const LoadedConfig loaded = load_config(line.positional, line.overrides);
  require_device(loaded.config.run.device);
  MpiSession mpi(nullptr, nullptr);
  const RunPlan plan = make_plan(loaded, mpi.size(), read_model_facts(loaded.config.model.path));
  return TrainRun(line, loaded, plan, mpi).run();
}

int run_eval(const CommandLine& line) {
  const LoadedConfig loaded = load_config(line.positional, line.overrides);
  const Config& config = loaded.config;
  require_device(config.run.device);
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
  start_log("", config.log.level, mpi.rank());
  const std::string folder = config.tokenizer.path.value_or(config.model.path);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::optional<ChatTemplate> chat =
      load_chat_template(folder, config.tokenizer.chat_template.value_or(""));
  const bool random = config.model.init == "random";
  const auto model =
      load_model(config.model.path, plan.dtype, plan.context_tokens, false, random, config.run.seed);
  std::optional<int64_t> threads = config.run.threads;
  if (line.has("--threads")) threads = line.integer("--threads", 1);
  Arena arena;
  Ctx ctx{arena, Device::cpu, resolve_threads(threads, mpi.ranks_on_node())};
  Journal journal(nullptr, 0);
  Exchange exchange(*comm, 0);
  Services services{loaded, plan, *comm, ctx, journal, exchange, *model, &tokenizer, nullptr};
  Json result = Json::object();
  for (const auto& [name, value] : Validation(services, chat ? &*chat : nullptr).run(0)) result[name] = value;
  if (comm->rank() == 0) std::printf("%s\n", dump_json_line(result).c_str());
  return static_cast<int>(Exit::ok);
}

}  // namespace temper

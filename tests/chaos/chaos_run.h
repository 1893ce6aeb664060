#pragma once
// Runs that faults are let loose on: a model so small that a run takes a second, runs of one to four ranks
// with all that makes a resume hard, each once without a fault, and what must hold after one.

#include <mutex>

#include "src/core/stopwatch.h"
#include "src/run/session/start/find_checkpoint.h"
#include "tests/chaos/cases.h"
#include "tests/support/background.h"
#include "tests/support/run_fixture.h"
#include "tests/support/same_run.h"

namespace temper {

/// How a run is made; 0 ranks: without mpirun.
struct Scenario {
  const char* name;
  int ranks;
  const char* overrides;
};

inline constexpr Scenario kScenarios[] = {
    {"alone", 0, "checkpoint.every=1 "},
    {"two", 2, "run.max_policy_lag=1 checkpoint.every=2 train.samples_per_update=3 checkpoint.keep=1 "},
    {"partial", 2,
     "run.max_policy_lag=1 checkpoint.every=1 rollout.tokens_per_step=4 rollout.dynamic_sampling_rounds=1 "
     "rollout.max_new_tokens=10 "},
    {"apart", 3,
     "run.max_policy_lag=2 checkpoint.every=1 roles.rollout.ranks='\"0\"' roles.reference.ranks='\"1\"' "
     "roles.trainer.ranks='\"2\"' "},
    {"apart-partial", 3,
     "run.max_policy_lag=1 checkpoint.every=2 roles.rollout.ranks='\"1-2\"' roles.reference.ranks='\"0\"' "
     "roles.trainer.ranks='\"0\"' rollout.tokens_per_step=4 rollout.max_new_tokens=10 "},
    {"shared", 4,
     "run.max_policy_lag=1 checkpoint.every=1 roles.trainer.pp=2 roles.trainer.zero=3 "
     "rollout.max_prompt_tokens=30 rollout.max_new_tokens=8 train.max_tokens_per_microbatch=38 "
     "rollout.tokens_per_step=4 "},
    {"taught", 3,
     "run.max_policy_lag=1 checkpoint.every=1 roles.teacher.path=teacher algorithm.teacher_coef=0.5 "
     "roles.rollout.ranks='\"0\"' roles.reference.ranks='\"0\"' roles.teacher.ranks='\"1\"' "
     "roles.trainer.ranks='\"2\"' rollout.tokens_per_step=4 rollout.max_new_tokens=10 "},
    // A validation stops it at the fifth of seven steps; the best checkpoints are others than the newest.
    {"validated", 2,
     "run.steps=7 checkpoint.every=2 checkpoint.keep=1 validation.data=data.jsonl "
     "validation.every=1 validation.max_prompts=4 validation.samples_per_prompt=2 "
     "'rollout.stop=[\"e\",\"a\",\"i\",\"o\"]' rollout.max_new_tokens=12 "
     "checkpoint.best.metric=val/data/response_length/mean checkpoint.best.mode=max "
     "run.stop_when.metric=val/data/response_length/mean run.stop_when.at_least=1 run.stop_when.times=5 "},
    {"sft", 2,
     "algorithm.name=sft algorithm.kl_coef=0 algorithm.entropy_coef=0 rollout.samples_per_prompt=1 "
     "train.samples_per_update=3 checkpoint.every=1 "},
};

inline constexpr int kChaosSteps = 5;

/// Another shape than that of the policy.
inline constexpr const char* kTeacher = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 256,
  "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2,
  "eos_token_id": 2})";

class ChaosRun : public RunFixture {
 protected:
  static constexpr const char* kConfig = R"(
run.name = "run"
run.steps = 5
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 6
checkpoint.keep = 2
checkpoint.export_hf_every = 2
optimizer.schedule = "linear"
)";

  void SetUp() override {
    prepare(kConfig, sums(23));
    ASSERT_EQ(program_.init_model("teacher", kTeacher), 0) << output();
  }

  /// What killed jobs of MPI leave behind stays in a folder of the run. `variables`: NAME=VALUE ... for it
  /// alone.
  std::string command(const Scenario& s, const std::string& run, const std::string& variables = "") const {
    const std::string train = fmt::format("train run.toml {} run.name={}", s.overrides, run);
    if (s.ranks == 0) return fmt::format("env {} {} {}", variables, program_.temper(), train);
    make_directories(program_.path(mpi_of(run)));
    return fmt::format("env OMPI_MCA_btl_vader_backing_directory={0} OMPI_MCA_orte_tmpdir_base={0} {1} {2}",
                       program_.path(mpi_of(run)), variables, program_.mpirun(s.ranks, train));
  }
  static std::string mpi_of(const std::string& run) { return "mpi-" + run; }
  static std::string log_of(const std::string& run) { return run + ".log"; }
  /// What the last start of a run printed.
  std::string printed(const std::string& run) const {
    return exists(log_of(run)) ? program_.read(log_of(run)) : "";
  }

  /// The name of the same run without a fault, made when it is first asked for; `seconds`: what it took.
  std::string whole(const Scenario& s, double* seconds = nullptr) {
    const std::lock_guard lock(mutex_);
    const std::string name = std::string("whole-") + s.name;
    if (!whole_seconds_.contains(name)) {
      const Stopwatch watch;
      Background job(program_, command(s, name), log_of(name));
      if (const int code = job.wait(); code != 0)
        throw std::runtime_error(fmt::format("{} ended with {}: {}", name, code, printed(name)));
      whole_seconds_[name] = watch.seconds();
    }
    if (seconds) *seconds = whole_seconds_[name];
    return name;
  }

  int64_t newest_step(const std::string& run) const {
    const std::vector<int64_t> steps = list_checkpoints(program_.path("runs/" + run + "/checkpoints"));
    return steps.empty() ? 0 : steps.back();
  }
  /// After a fault: what was committed is there and sound. Empty, or what is wrong.
  std::string committed_defect(const std::string& run, int64_t before) const {
    const int64_t newest = newest_step(run);
    if (newest < before) return fmt::format("checkpoint {} is lost, {} is the newest", before, newest);
    if (newest == 0) return "";
    for (const Damage& d : verify_checkpoint(program_.path(checkpoint(run, newest))))
      return fmt::format("checkpoint {}: {}: {}", newest, d.file, d.reason);
    return "";
  }
  /// What an ended run is not that it should be: the one without a fault, with nothing half made beside it.
  std::string unfinished(const Scenario& s, const std::string& run) {
    if (const std::string difference = run_difference(program_, whole(s), run); !difference.empty())
      return fmt::format("{} is another run: {}\n{}", s.name, difference, printed(run));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(program_.path("runs/" + run)))
      if (is_temporary(entry.path().filename().string())) return entry.path().string() + " was left";
    return "";
  }
  void clear(const std::string& run) const {
    for (const std::string& folder : {"runs/" + run, mpi_of(run)}) remove_tree(program_.path(folder));
    std::filesystem::remove(program_.path(log_of(run)));
  }
  /// Goes on with a run until its end; it must be as it should be then.
  std::string finish_and_compare(const Scenario& s, const std::string& run) {
    Background job(program_, command(s, run), log_of(run));
    if (const int code = job.wait(); code != 0)
      return fmt::format("the last start ended with {}: {}", code, printed(run));
    std::string wrong = unfinished(s, run);
    if (wrong.empty()) clear(run);
    return wrong;
  }
  /// Waits until nothing of the job is left: a start may follow.
  static void wait_until_gone(Background& job) {
    job.wait();
    while (!job.processes().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, double> whole_seconds_;
};

}  // namespace temper

// Weights that become infinite or no numbers, in a step of their own or by what an update makes of finite
// ones: the run ends with 77 and what the step was trained on, no such state is ever committed, and the last
// good checkpoint stays and can be gone on from.

#include "tests/chaos/chaos_run.h"

namespace temper {
namespace {

constexpr Scenario kRuns[] = {
    {"alone", 0, ""},
    {"zero", 2, "roles.trainer.zero=3 "},
    {"stages", 2, "roles.trainer.pp=2 "},
    {"heads", 2, "roles.trainer.tp=2 "},
    {"apart", 2,
     "run.max_policy_lag=1 roles.rollout.ranks='\"0\"' roles.trainer.ranks='\"1\"' "
     "roles.reference.ranks='\"1\"' "},
    {"adapters", 2, "lora.rank=2 "},
    {"sft", 2,
     "algorithm.name=sft algorithm.kl_coef=0 algorithm.entropy_coef=0 rollout.samples_per_prompt=1 "
     "train.samples_per_update=6 "},
};
constexpr const char* kWild[] = {"optimizer.weight_decay=1e25 ", "optimizer.weight_decay=1e30 ",
                                 "optimizer.weight_decay=1e38 ", "optimizer.lr=1000 optimizer.grad_clip=0 "};

class WildNumbers : public ChaosRun {
 protected:
  std::string sound_defect(const std::string& run) const {
    for (const int64_t step : list_checkpoints(program_.path("runs/" + run + "/checkpoints")))
      for (const Damage& d : verify_checkpoint(program_.path(checkpoint(run, step)), Numbers::finite))
        return fmt::format("checkpoint {}: {} {}: {}", step, d.file, d.tensor, d.reason);
    const std::string folder = program_.path("runs/" + run + "/checkpoints");
    for (const std::string& name : list_directory(folder))
      if (is_temporary(name)) return name + " was left";
    return "";
  }
  /// The same run with a rate and a decay that leave the weights about as they are: from the newest
  /// checkpoint, or in a run of its own from the one before it, where the weights of the newest are finite
  /// but too large for a step.
  std::string going_on_defect(const Scenario& s, const std::string& run, int64_t newest, bool too_large) {
    const int64_t from = too_large ? newest - 1 : newest;
    if (from == 0) return "";
    const std::string name = too_large ? run + "-before" : run;
    const std::string sane =
        fmt::format("{}run.steps={} checkpoint.every=1 checkpoint.export_hf_every=0 checkpoint.resume={} ",
                    s.overrides, from + 2, too_large ? checkpoint(run, from) : "auto");
    Background job(program_, command({s.name, s.ranks, sane.c_str()}, name), log_of(name));
    const int code = job.wait();
    const std::string said = printed(name);
    wait_until_gone(job);
    if (code != 0) return fmt::format("the step after {} ended with {}: {}", from, code, said);
    if (said.find("resumed from " + checkpoint(run, from)) == std::string::npos)
      return fmt::format("it did not go on from step {}: {}", from, said);
    if (newest_step(name) != from + 2) return fmt::format("step {} is the last: {}", newest_step(name), said);
    std::string defect = sound_defect(name);
    if (too_large && defect.empty()) clear(name);
    return defect;
  }
  std::string check(const Scenario& s, const std::string& wild, const std::string& run) {
    const std::string overrides = std::string(s.overrides) +
                                  "run.steps=12 optimizer.schedule=constant optimizer.lr=1 "
                                  "checkpoint.every=1 checkpoint.keep=2 checkpoint.export_hf_every=0 " +
                                  wild;
    Background job(program_, command({s.name, s.ranks, overrides.c_str()}, run), log_of(run));
    const int code = job.wait();
    const std::string fault = fmt::format("{}, {}: code {}: ", s.name, wild, code), said = printed(run);
    wait_until_gone(job);
    if (code != static_cast<int>(Exit::numerics)) return fault + said;
    if (said.find("not finite") == std::string::npos) return fault + said;
    if (const std::string defect = sound_defect(run); !defect.empty()) return fault + defect;
    const bool in_update = said.find("nonfinite/") != std::string::npos;
    if (in_update && !exists("runs/" + run + "/nonfinite")) return fault + "no dump: " + said;
    if (!in_update && said.find("while sampling") == std::string::npos) return fault + said;
    const int64_t step = newest_step(run);
    if (step == 0) return fault + "nothing was committed before: " + said;
    const bool too_large = said.find("a checkpoint was not written") == std::string::npos;
    if (const std::string defect = going_on_defect(s, run, step, too_large); !defect.empty())
      return fault + defect;
    clear(run);
    return "";
  }
};

TEST_F(WildNumbers, AreNeverCommitted) {
  constexpr auto kAll = static_cast<int64_t>(std::size(kRuns) * std::size(kWild));
  run_cases(chaos_count(1, kAll), [&](int64_t number, Draw&) {
    const auto n = static_cast<size_t>(number);
    return check(kRuns[n % std::size(kRuns)], kWild[n / std::size(kRuns)], fmt::format("numbers-{}", number));
  });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// Whole runs whose tensors go from GPU to GPU, through the program: they have the bits of runs that go by way
// of host memory, a stop inside of an update loses nothing, and a rank that is killed or stands still ends
// the job by name, also while the GPUs of others wait for it. Ranks have a GPU each, by peer memory and by
// NCCL; where they share one, NCCL carries (tests/gpu/gpu_ranks.h).

#include "src/core/device.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/gpu/gpu_runs.h"

namespace temper {
namespace {

const char* kConfig = R"(
run.name = "run"
run.steps = 3
run.device = "cuda"
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 2
rollout.samples_per_prompt = 3
rollout.max_new_tokens = 10
rollout.kv_memory = 20000000
train.samples_per_update = 3
train.max_tokens_per_microbatch = 100
model.context_tokens = 100
checkpoint.every = 1
checkpoint.keep = 20
checkpoint.export_hf_every = 3
cluster.watchdog_seconds = 30
)";
constexpr int kSteps = 3;

struct Layout {
  const char* name;
  int ranks;
  const char* keys;
  bool weights_move = false;  // to ranks that read the GPU memory of others
};

/// What carries tensors between GPUs: its name in names of runs and in words of the program, and what has it
/// taken where ranks have a GPU each.
struct Carrier {
  const char *name, *words, *before;
};
constexpr Carrier kPeers{"peers", "by peer memory", ""}, kNccl{"nccl", "by NCCL", "env NCCL_P2P_DISABLE=1 "};

class RankRuns : public GpuRunFixture {
 protected:
  void SetUp() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    gpus_ = static_cast<int>(device::find_gpus().gpus.size());
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(29));
    ASSERT_EQ(program_.init_model("model", kTensorCores), 0) << output();
  }
  /// What the ranks of `mpirun` start on a GPU that they share.
  static std::string alone_on_their_hosts() {
    std::string variables = "NCCL_HOSTID=$OMPI_COMM_WORLD_RANK";
    for (const auto& [name, value] : kAloneOnItsHost) variables += fmt::format(" {}={}", name, value);
    return fmt::format("sh -c '{} exec \"$0\" \"$@\"' ", variables);
  }
  std::string start(const Layout& l, const std::string& name, const std::string& more = "") const {
    return program_.mpirun(l.ranks, fmt::format("train run.toml run.name={} cluster.shared_gpus=allow {} {}",
                                                name, l.keys, more));
  }
  std::vector<Carrier> carriers(const Layout& l) const {
    if (gpus_ < l.ranks) return {kNccl};
    return {kPeers, kNccl};
  }
  std::string command(const Carrier& by, const Layout& l, const std::string& name,
                      const std::string& more = "") const {
    std::string line = start(l, name, more);
    if (gpus_ >= l.ranks) return by.before + line;
    return line.insert(line.find(program_.temper()), alone_on_their_hosts());
  }
  void expect_same(const std::string& a, const std::string& b) const {
    EXPECT_EQ(metrics(a), metrics(b)) << a << ", " << b;
    EXPECT_TRUE(exported_weights(a, kSteps) == exported_weights(b, kSteps)) << a << ", " << b;
    for (int step = 1; step <= kSteps; ++step)
      EXPECT_TRUE(rollouts(a, step) == rollouts(b, step)) << a << ", " << b << ", step " << step;
  }

  int gpus_ = 0;
};

const Layout kLayouts[] = {
    {"tp2", 2, "roles.trainer.tp=2"},
    {"shards", 2, "roles.trainer.zero=3 roles.trainer.cp=2"},
    {"stages", 4, "roles.trainer.tp=2 roles.trainer.pp=2 roles.rollout.tp=4", true},
    {"ahead", 3,
     "run.max_policy_lag=1 roles.rollout.ranks='\"0\"' roles.reference.ranks='\"0\"' "
     "roles.trainer.ranks='\"1-2\"' roles.trainer.tp=2 roles.rollout.tp=1 roles.reference.tp=1",
     true},
    {"far_ahead", 3,
     "run.max_policy_lag=2 roles.rollout.ranks='\"0\"' roles.reference.ranks='\"1-2\"' "
     "roles.trainer.ranks='\"1-2\"' roles.trainer.tp=2 roles.rollout.tp=1",
     true}};

class RankLayouts : public RankRuns, public ::testing::WithParamInterface<Layout> {};

TEST_P(RankLayouts, HaveTheBitsOfHostMemory) {
  const Layout& l = GetParam();
  ASSERT_EQ(program_.shell("CUDA_VISIBLE_DEVICES=0 " + start(l, "staged")), 0) << output();
  EXPECT_TRUE(says("by way of host memory")) << output();
  for (const Carrier& by : carriers(l)) {
    const std::string direct = by.name, on = direct + "-on";
    ASSERT_EQ(program_.shell(command(by, l, direct)), 0) << output();
    EXPECT_TRUE(says(by.words) && !says("by way of host memory")) << output();
    EXPECT_EQ(says("weights read out of this GPU's memory by "), l.weights_move) << output();
    expect_same(direct, "staged");
    copy_until(direct, on, 2, kSteps);
    ASSERT_EQ(program_.shell(command(by, l, on)), 0) << output();
    expect_same(on, "staged");
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, RankLayouts, ::testing::ValuesIn(kLayouts),
                         [](const auto& of) { return std::string(of.param.name); });

/// One rank is told, in steps that are mostly update, and all leave the same one.
TEST_F(RankRuns, AStopInAnUpdateLosesNothing) {
  constexpr int kMore = 30;
  const std::string keys = fmt::format(
      "run.steps={0} checkpoint.export_hf_every={0} checkpoint.every=0 rollout.prompts_per_step=4 "
      "train.samples_per_update=12 train.max_tokens_per_microbatch=40 rollout.max_prompt_tokens=28",
      kMore);
  for (const Layout& l : {kLayouts[0], kLayouts[1], Layout{"dp2", 2, ""}}) {
    const Carrier by = carriers(l).front();
    const std::string whole = std::string(l.name) + "-whole", stopped = std::string(l.name) + "-stopped";
    ASSERT_EQ(program_.shell(command(by, l, whole, keys)), 0) << output();
    for (const int milliseconds : {1, 8, 15, 22})
      stop_inside_of_a_step(command(by, l, stopped, keys), stopped, kMore, milliseconds,
                            [](Background& job) { return job.rank(1); });
    ASSERT_EQ(program_.shell(command(by, l, stopped, keys)), 0) << output();
    EXPECT_EQ(metrics(stopped), metrics(whole)) << l.name;
    EXPECT_TRUE(exported_weights(stopped, kMore) == exported_weights(whole, kMore)) << l.name;
  }
}

TEST_F(RankRuns, ARankThatIsKilledOrStoppedEndsTheJobByName) {
  for (const Layout& l : {kLayouts[0], Layout{"pp2", 2, "roles.trainer.pp=2"}})
    for (const Carrier& by : carriers(l))
      for (const int signal : {SIGKILL, SIGSTOP}) {
        const std::string name = fmt::format("{}-{}-{}", l.name, by.name, signal);
        SCOPED_TRACE(name);
        Background job(program_, command(by, l, name, "run.steps=100000 cluster.watchdog_seconds=5"));
        ASSERT_TRUE(job.until([&] { return steps_done(name) > 1; })) << output();
        EXPECT_TRUE(says(by.words)) << output();
        const pid_t process = job.rank(1);
        ::kill(process, signal);
        EXPECT_EQ(job.wait(), signal == SIGKILL ? 128 + SIGKILL : static_cast<int>(Exit::hang)) << output();
        EXPECT_TRUE(exists(fmt::format("runs/{}/missing-rank.txt", name))) << output();
        EXPECT_TRUE(says("where: rank 1, host ") && says(fmt::format("pid {}", process))) << output();
        EXPECT_TRUE(says(signal == SIGKILL ? " died in " : "waits: rank 0, host ")) << output();
      }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

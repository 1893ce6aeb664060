// The job scripts of slurm/, with programs in the place of Slurm's that say what they were asked for.

#include "tests/support/run_fixture.h"

namespace temper {
namespace {

class SlurmScripts : public ::testing::Test {
 protected:
  SlurmScripts() {
    EXPECT_EQ(program_.shell("mkdir bin"), 0);
    program_.write("bin/srun", "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit ${SRUN_CODE:-0}\n");
    program_.write("bin/scontrol", fmt::format("#!/bin/sh\necho \"$1\"\n[ $1 = requeue ] || "
                                               "echo \"   Command={}/x.sbatch a b\"\n",
                                               folder_));
    EXPECT_EQ(program_.shell("chmod +x bin/*"), 0);
  }
  /// What the script asks srun for, a word a line.
  std::string job(const std::string& script, int nodes, const std::string& arguments,
                  const std::string& variables = "", int code = 0) const {
    const std::string slurm = fmt::format(
        "PATH=$PWD/bin:$PATH SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES={} SLURM_NTASKS_PER_NODE=8 "
        "SLURM_CPUS_PER_TASK=12 TEMPER=/opt/temper",
        nodes);
    EXPECT_EQ(
        program_.shell(fmt::format("{} {} bash {}/{} {}", slurm, variables, folder_, script, arguments)),
        code)
        << program_.output();
    return program_.output();
  }
  const std::string folder_ = std::filesystem::absolute("slurm").string();
  const Program program_;
};

/// The job scripts with the program itself, which srun starts as one rank.
class SlurmRuns : public RunFixture {
 protected:
  /// A start that ends with 75. What follows the words is done by srun in the program's place.
  bool is_queued_again(const std::string& script, const std::string& instead = "") const {
    program_.write("bin/srun", "#!/bin/bash\nwhile [ \"$1\" != \"$TEMPER\" ]; do shift; done\n" +
                                   (instead.empty() ? "\"$@\" run.dir=elsewhere\n" : instead) + "exit 75\n");
    program_.write("bin/scontrol", fmt::format("#!/bin/sh\necho \"$1\"\n[ $1 = requeue ] || "
                                               "echo \"   Command={}/x.sbatch a b\"\n",
                                               folder_));
    EXPECT_EQ(
        program_.shell(fmt::format("chmod +x bin/*; PATH=$PWD/bin:$PATH SLURM_JOB_ID=7 "
                                   "SLURM_JOB_NUM_NODES=1 SLURM_NTASKS_PER_NODE=1 SLURM_CPUS_PER_TASK=1 "
                                   "TEMPER={} bash {}/{} run.toml",
                                   program_.temper(), folder_, script)),
        75)
        << output();
    return says("queued again\nrequeue\n");
  }
  const std::string folder_ = std::filesystem::absolute("slurm").string();
};

std::string last_lines(const std::string& text, int count) {
  size_t at = text.size();
  while (count-- >= 0 && at != std::string::npos && at > 0) at = text.rfind('\n', at - 1);
  return at == std::string::npos ? text : text.substr(at + 1);
}

/// What they and train.sh set for each other is in another file.
TEST_F(SlurmScripts, AreSound) {
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() == ".md") continue;
    EXPECT_EQ(program_.shell("bash -n " + entry.path().string()), 0) << program_.output();
  }
  if (program_.shell("command -v shellcheck") != 0) return;
  EXPECT_EQ(program_.shell(fmt::format("shellcheck -e SC1091,SC2034,SC2154 -s bash {0}/*.sbatch {0}/*.sh", folder_)), 0)
      << program_.output();
}

TEST_F(SlurmScripts, RunTheConfigWithItsKeys) {
  for (const char* script : {"cpu.sbatch", "gpu.sbatch", "gpu_node.sbatch", "gpu_nodes.sbatch"}) {
    SCOPED_TRACE(script);
    EXPECT_EQ(last_lines(job(script, 2, "c.toml 'run.name=a b'"), 4),
              "/opt/temper\ntrain\nc.toml\nrun.name=a b\n");
  }
}

TEST_F(SlurmScripts, RanksOfManyNodesAreInOrder) {
  for (const char* script : {"gpu_nodes.sbatch", "gpu_disjoint.sbatch"})
    EXPECT_NE(job(script, 4, "c.toml").find("\n--distribution=block:block\n"), std::string::npos) << script;
}

TEST_F(SlurmScripts, SomeNodesTrainAndTheOthersGenerate) {
  const std::string half = job("gpu_disjoint.sbatch", 4, "c.toml run.steps=3");
  EXPECT_EQ(last_lines(half, 4),
            "c.toml\nroles.trainer.ranks=0-15\nroles.rollout.ranks=16-31\nrun.steps=3\n");
  const std::string most = job("gpu_disjoint.sbatch", 4, "c.toml", "TRAINER_NODES=3");
  EXPECT_EQ(last_lines(most, 3), "c.toml\nroles.trainer.ranks=0-23\nroles.rollout.ranks=24-31\n");
  for (const char* none : {"TRAINER_NODES=4", "TRAINER_NODES=0"})
    EXPECT_NE(job("gpu_disjoint.sbatch", 4, "c.toml", none, 64).find("4 nodes"), std::string::npos);
}

TEST_F(SlurmScripts, QueueThemselvesAgainWhereTheRunCanGoOn) {
  const std::string again = "ended with 75; queued again\nrequeue\n";
  EXPECT_EQ(last_lines(job("gpu_nodes.sbatch", 2, "c.toml", "SRUN_CODE=75", 75), 2), again);
  EXPECT_EQ(job("gpu_nodes.sbatch", 2, "c.toml", "SRUN_CODE=65", 65).find("queued again"), std::string::npos);
}

/// Wherever the run is; what another run saves beside it is none of it.
TEST_F(SlurmRuns, GoOnWhileTheirOwnRunSaves) {
  ASSERT_EQ(program_.shell("mkdir bin"), 0);
  prepare(R"(
run.name = "r"
run.steps = 1
algorithm.name = "sft"
rollout.prompts_per_step = 2
rollout.max_new_tokens = 2
train.samples_per_update = 2
reward.functions = ["exact"]
)",
          sums(3));
  ASSERT_TRUE(is_queued_again("cpu.sbatch")) << output();
  EXPECT_EQ(program_.read("temper-7.saved"),
            "1 " + std::filesystem::canonical(program_.path("elsewhere/r/checkpoints/step-000001")).string() +
                "\n");
  const std::string other =
      "saved=runs/other/checkpoints/step-$RANDOM; mkdir -p $saved; echo > $saved/manifest.json\n";
  EXPECT_TRUE(is_queued_again("cpu.sbatch", other)) << output();
  EXPECT_TRUE(is_queued_again("cpu.sbatch", other)) << output();
  EXPECT_FALSE(is_queued_again("cpu.sbatch", other)) << output();
  EXPECT_TRUE(is_queued_again("cpu.sbatch", "echo 2 /elsewhere > $TEMPER_SAVED_FILE\n")) << output();
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

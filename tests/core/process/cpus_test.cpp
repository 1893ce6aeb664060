// Cores of the affinity mask, and quotas of control groups from files as the kernel writes them.

#include "src/core/process/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace temper {
namespace {

class Machine : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::vector<double> quotas() const {
    std::vector<double> cores;
    for (const CpuQuota& quota : cpus_of_process(root_.path()).quotas) cores.push_back(quota.cores);
    return cores;
  }
  TempDir root_;
};

TEST_F(Machine, TheMaskIsTheKernels) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const std::vector<int> all = cpus_of_process(root_.path()).cores;
  ASSERT_EQ(std::ssize(all), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(all.back(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cpus_of_process(root_.path()).cores, std::vector<int>{all.back()});
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST_F(Machine, EveryGroupWithAQuotaCounts) {
  write("proc/self/cgroup", "0::/slurm/job/step\n");
  write("sys/fs/cgroup/slurm/job/step/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/slurm/job/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/slurm/cpu.max", "100000 50000\n");
  EXPECT_EQ(quotas(), (std::vector<double>{1.5, 2}));
  const std::vector<CpuQuota> found = cpus_of_process(root_.path()).quotas;
  EXPECT_NE(found[0].group, found[1].group);
  EXPECT_EQ(found[0].group, cpus_of_process(root_.path()).quotas[0].group);
}

TEST_F(Machine, OldGroups) {
  write("proc/self/cgroup", "4:cpuacct:/other\n3:cpu,cpuacct:/docker/x\n1:memory:/docker/x\n");
  write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quotas(), (std::vector<double>{2.5}));
}

/// The path is the host's, and only the container's group can be seen, at the mount.
TEST_F(Machine, OldGroupsInAContainer) {
  write("proc/self/cgroup", "3:cpu:/docker/0123\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quotas(), (std::vector<double>{0.5}));
}

TEST_F(Machine, NoQuotaWithoutGroupsOrNumbers) {
  EXPECT_TRUE(quotas().empty());
  write("proc/self/cgroup", "0::/\nnonsense\n");
  write("sys/fs/cgroup/cpu.max", "nonsense\n");
  EXPECT_TRUE(quotas().empty());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

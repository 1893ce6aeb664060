// What a machine has, from files as the kernel writes them.

#include "src/run/plan/memory/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace temper {
namespace {

class Machine : public ::testing::Test {
 protected:
  Machine() { write("proc/meminfo", "MemTotal:    1000 kB\nMemFree:  10 kB\nMemAvailable:   900 kB\n"); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void expect(int64_t total, int64_t available) const {
    const HostMemory found = host_memory(root_.path());
    EXPECT_EQ(found.total, total);
    EXPECT_EQ(found.available, available);
  }
  TempDir root_;
};

TEST_F(Machine, WithoutControlGroups) { expect(1000 * 1024, 900 * 1024); }

TEST_F(Machine, TheLeastLimitAboveTheGroupCounts) {
  write("proc/self/cgroup", "0::/slurm/job/step\n");
  write("sys/fs/cgroup/slurm/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/slurm/job/memory.max", "5000\n");
  write("sys/fs/cgroup/slurm/job/memory.current", "2000\n");
  write("sys/fs/cgroup/slurm/memory.max", "7000\n");
  expect(5000, 3000);
}

TEST_F(Machine, OldControlGroups) {
  write("proc/self/cgroup", "3:cpu,cpuacct:/a\n2:memory:/docker/x\n");
  write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "6000\n");
  write("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "7000\n");
  expect(6000, 0);
}

TEST_F(Machine, AnUnlimitedGroupHasAll) {
  write("proc/self/cgroup", "2:memory:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  expect(1000 * 1024, 900 * 1024);
}

TEST_F(Machine, NothingIsKnownElsewhere) {
  std::filesystem::remove(root_ / "proc/meminfo");
  expect(0, 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// What killed jobs left on a host: that of temper's own jobs goes, all else stays.

#include "src/comm/host/job_litter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "src/core/file.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

/// The number of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

class JobLitter : public ::testing::Test {
 protected:
  /// A session folder of an mpirun, with two segments of a minute ago for its job.
  std::string job(pid_t mpirun, uint32_t number, bool marked) const {
    const std::string session = dir_ / ("ompi.host.0/pid." + std::to_string(mpirun));
    make_directories(session + "/0");
    if (marked) mark_job(session, number);
    for (const char* rank : {"0", "1"}) {
      const int file = ::open(segment(number, rank).c_str(), O_CREAT | O_RDWR, 0600);
      const std::string content(8192, 'x');
      EXPECT_EQ(::write(file, content.data(), content.size()), 8192);
      const timespec old[2] = {{::time(nullptr) - 60, 0}, {::time(nullptr) - 60, 0}};
      EXPECT_EQ(::futimens(file, old), 0);
      ::close(file);
    }
    return session;
  }
  std::string segment(uint32_t number, const std::string& rank) const {
    return dir_ / fmt::format("shm/vader_segment.host.0.{:x}.{}", number, rank);
  }
  void SetUp() override { make_directories(dir_ / "shm"); }

  const TempDir dir_;
};

TEST_F(JobLitter, OfKilledJobsOfTemperGoes) {
  const std::string mine = job(::getpid(), 0x7fdc0001, true);
  const std::string killed = job(dead_process(), 0x7fdc0002, true), stranger = job(dead_process(), 3, false),
                    busy = job(dead_process(), 0x7fdc0004, true), lives = job(::getppid(), 5, true);
  const int file = ::open(segment(0x7fdc0004, "1").c_str(), O_RDWR);
  void* const used = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  const Cleared cleared = clear_killed_jobs(mine, dir_ / "shm");
  EXPECT_EQ(cleared.jobs, 1);
  EXPECT_GE(cleared.bytes, 16384);
  EXPECT_FALSE(path_exists(killed));
  EXPECT_FALSE(path_exists(segment(0x7fdc0002, "0")) || path_exists(segment(0x7fdc0002, "1")));
  for (const std::string& session : {mine, stranger, busy, lives}) EXPECT_TRUE(path_exists(session)) << session;
  EXPECT_EQ(list_directory(dir_ / "shm").size(), 8u);
  ::munmap(used, 8192);
  EXPECT_EQ(clear_killed_jobs(mine, dir_ / "shm").jobs, 1) << "that job has ended, too";
}

TEST_F(JobLitter, OtherNamesAreNotLookedInto) {
  const std::string session = dir_ / "mine/pid.1";
  make_directories(session);
  EXPECT_EQ(clear_killed_jobs(session, dir_ / "shm").jobs, 0);
  mark_job(dir_ / "absent", 1);  // nothing to mark
  EXPECT_EQ(clear_killed_jobs(dir_ / "ompi.absent.0/pid.1", dir_ / "shm").jobs, 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

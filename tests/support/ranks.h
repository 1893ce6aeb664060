#pragma once
// The frame of a test program on N ranks of mpirun (1: alone): a Comm over all of them, a folder that they
// share.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "src/comm/mpi_comm.h"
#include "tests/support/temp_dir.h"

namespace temper {

/// The limit of waits in test programs; tools that slow them down a hundredfold raise it.
inline const double kTestWaitLimit = [] {
  const char* const seconds = std::getenv("TEST_WAIT_SECONDS");
  return seconds != nullptr ? std::atof(seconds) : 60.0;
}();
inline const MpiSession* test_world = nullptr;

inline std::unique_ptr<Comm> comm_of_all() {
  std::vector<int> ranks(static_cast<size_t>(test_world->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return test_world->make_comm(ranks, kTestWaitLimit);
}

inline std::unique_ptr<Collectives> collectives_of_all() {
  return test_world->make_collectives(0, test_world->rank(), Device::cpu, "test", kTestWaitLimit);
}

/// A test that every rank runs. The folder is there until all ranks are done with it.
class OnRanks : public ::testing::Test {
 protected:
  OnRanks() : comm_(comm_of_all()) {
    if (comm_->rank() == 0) own_folder_ = std::make_unique<TempDir>();
    folder_ = comm_->broadcast(own_folder_ ? own_folder_->path() : "", 0, "folder of the test");
  }
  ~OnRanks() override { comm_->barrier("end of the test"); }

  std::unique_ptr<Comm> comm_;
  std::unique_ptr<TempDir> own_folder_;  // rank 0
  std::string folder_;
};

/// The main of <name>_mpiN_test.cpp.
inline int run_tests_on_ranks(int argc, char** argv, int num_ranks) {
  ::testing::InitGoogleTest(&argc, argv);
  // An exception has to end the process, and the launcher then all others, instead of leaving them in a
  // collective.
  GTEST_FLAG_SET(catch_exceptions, false);
  const MpiSession world(&argc, &argv);
  test_world = &world;
  if (world.size() != num_ranks) {
    std::fprintf(stderr, "this test needs %d ranks, it runs on %d\n", num_ranks, world.size());
    return static_cast<int>(Exit::environment);
  }
  return RUN_ALL_TESTS();
}

}  // namespace temper

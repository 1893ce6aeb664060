// A process that no launcher has started: a world of one rank, without MPI.

#include "src/comm/alone/one_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "src/comm/mpi_comm.h"
#include "src/ops/backend.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

TEST(OneRank, HasNoUseForMpi) {
  const MpiSession world(nullptr, nullptr);
  EXPECT_FALSE(mpi_is_up());
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.ranks_on_node(), 1);
  EXPECT_EQ(world.make_comm(-1, 0, 1.0), nullptr);
  EXPECT_EQ(world.make_comm({1}, 1.0), nullptr);
  EXPECT_EQ(world.make_collectives(-1, 0, Device::cpu, "dp", 1.0), nullptr);
  std::vector<std::unique_ptr<Comm>> comms;
  comms.push_back(world.make_comm_of_all(1.0));
  comms.push_back(world.make_comm_of_host(1.0));
  comms.push_back(world.make_comm(3, 2, 1.0));
  for (const std::unique_ptr<Comm>& comm : comms) {
    EXPECT_EQ(comm->size(), 1);
    comm->barrier("nobody else");
    EXPECT_EQ(comm->broadcast("bytes", 0, "own"), "bytes");
    EXPECT_EQ(comm->all_gather("mine", "own"), std::vector<std::string>{"mine"});
    std::vector<double> values{-0.0, 1.5};
    comm->all_reduce_sum(values, "own");
    EXPECT_EQ(values[1], 1.5);
    EXPECT_TRUE(std::isnan(comm->all_reduce_max(std::nan(""), "own")));
  }
}

TEST(OneRank, SumsAreCopies) {
  const MpiSession world(nullptr, nullptr);
  const std::unique_ptr<Collectives> one = world.make_collectives(0, 0, Device::cpu, "dp", 1.0);
  Backend backend(Device::cpu);
  std::vector<float> flat{1, -2, 3e30f}, sum(3), all(3);
  const Tensor f = make_tensor(flat.data(), DType::f32, {3}), s = make_tensor(sum.data(), DType::f32, {3}),
               a = make_tensor(all.data(), DType::f32, {1, 3});
  one->all_reduce_sum(backend.ctx(), f, "own");
  one->all_reduce_sum_into(backend.ctx(), s, f, "own");
  one->all_gather(backend.ctx(), a, f, "own");
  EXPECT_EQ(flat, (std::vector<float>{1, -2, 3e30f}));
  EXPECT_EQ(sum, flat);
  EXPECT_EQ(all, flat);
  EXPECT_EQ(one->bytes_sent(), 0);
}

TEST(OneRank, MessagesToItselfComeInOrder) {
  const MpiSession world(nullptr, nullptr);
  const std::unique_ptr<Mailbox> mailbox = world.make_mailbox(0.5);
  mailbox->post(0, 1, "first");
  mailbox->post_shared(0, 1, std::make_shared<const std::string>("second"));
  EXPECT_FALSE(mailbox->poll(2));
  for (const char* text : {"first", "second"}) {
    const std::optional<Message> message = mailbox->poll(1);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->from, 0);
    EXPECT_EQ(message->bytes, text);
  }
  EXPECT_EQ(mailbox->outgoing_bytes(1), 0);
  expect_error(Exit::hang, {"what nobody sends"}, "a wait",
               [&] { mailbox->pause(1.0, "what nobody sends"); });
}

/// Each process would be a run of its own, and all of them write to one run folder.
TEST(OneRank, AnotherMpisLauncherIsRefused) {
  ::setenv("PMI_SIZE", "2", 1);
  expect_error(Exit::environment, {"launcher of another MPI"}, "PMI",
               [] { const MpiSession none(nullptr, nullptr); });
  ::setenv("PMI_SIZE", "1", 1);
  EXPECT_EQ(MpiSession(nullptr, nullptr).size(), 1);
  ::unsetenv("PMI_SIZE");
  ::setenv("SLURM_STEP_ID", "0", 1);
  ::setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  expect_error(Exit::environment, {"srun without PMIx"}, "srun",
               [] { const MpiSession none(nullptr, nullptr); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

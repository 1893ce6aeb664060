// NCCL on one GPU, a communicator of one rank: parcels to itself at odd sizes, several between the same ranks
// in the order of their lists, in order with kernels of the lane; sums and gathers of one rank; two
// communicators side by side; ends in order and beside an error; refusals in words.

#include "src/comm/collectives.h"
#include "src/comm/gpu/nccl_transport.h"
#include "src/ops/elementwise.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

constexpr double kLimit = 60;

std::unique_ptr<Transport> to_itself() { return make_nccl_transport(make_nccl_id(), 0, 1, "dp", kLimit); }

class NcclToItself : public ::testing::Test {
 protected:
  Tensor random(int64_t bytes, uint64_t seed) {
    const Values values = normal_values(bytes / 4 + 1, seed);
    const Tensor t = c_.scratch.make({bytes / 4 + 1}, DType::f32);
    device::copy_to_device(c_.lane, t.raw(), encode(values, DType::f32).data(), t.bytes());
    return t;
  }
  Tensor empty(int64_t bytes) {
    const Tensor t = c_.scratch.make({bytes / 4 + 1}, DType::f32);
    device::fill(c_.lane, t.raw(), 0xff, t.bytes());
    return t;
  }
  std::vector<char> first(const CTensor& t, int64_t bytes) {
    std::vector<char> all = bytes_of(c_, t);
    all.resize(static_cast<size_t>(bytes));
    return all;
  }

  TestCtx context_{1, Device::cuda};
  Ctx& c_ = context_;
};

TEST_F(NcclToItself, BytesArriveAtOddSizes) {
  const auto nccl = to_itself();
  EXPECT_STREQ(nccl->carrier(), "NCCL");
  for (const int64_t bytes : {1, 3, 16, 17, 4099, 1 << 20, (96 << 20) + 5}) {
    ArenaScope scope(c_.scratch);
    const Tensor from = random(bytes, 7), to = empty(bytes);
    const Parcel out{0, from.raw(), bytes}, in{0, to.raw(), bytes};
    nccl->exchange(c_.lane, {&out, 1}, {&in, 1}, "test: to itself");
    EXPECT_TRUE(first(to, bytes) == first(from, bytes)) << bytes;
    const std::vector<char> whole = bytes_of(c_, to);
    for (size_t i = static_cast<size_t>(bytes); i < whole.size(); ++i)
      EXPECT_EQ(whole[i], '\xff') << "beyond the end, " << bytes;
  }
}

/// Also parcels of nothing.
TEST_F(NcclToItself, SeveralArriveInTheOrderOfTheLists) {
  const auto nccl = to_itself();
  const Tensor a = random(4000, 1), b = random(4000, 2), to_a = empty(4000), to_b = empty(4000);
  const Parcel out[] = {{0, a.raw(), 4000}, {0, a.raw(), 0}, {0, b.raw(), 4000}};
  const Parcel in[] = {{0, to_a.raw(), 4000}, {0, to_a.raw(), 0}, {0, to_b.raw(), 4000}};
  nccl->exchange(c_.lane, out, in, "test: several");
  EXPECT_TRUE(first(to_a, 4000) == first(a, 4000));
  EXPECT_TRUE(first(to_b, 4000) == first(b, 4000));
  nccl->exchange(c_.lane, {}, {}, "test: nothing");
}

/// No wait of the host between the kernels and what carries their results.
TEST_F(NcclToItself, InOrderWithTheLane) {
  const auto nccl = to_itself();
  const int64_t count = 1 << 20;
  const Tensor x = random(4 * count - 4, 3), y = empty(4 * count - 4);
  const Values start = decode(bytes_of(c_, x), DType::f32);
  const Parcel out{0, x.raw(), x.bytes()}, in{0, y.raw(), y.bytes()};
  for (int round = 0; round < 20; ++round) {
    add(c_, x, x, x);  // doubles it
    nccl->exchange(c_.lane, {&out, 1}, {&in, 1}, "test: in order");
    device::copy(c_.lane, x.raw(), y.data, y.bytes());
  }
  Values want = start;
  for (double& value : want) value *= 1 << 20;
  expect_same_bits("doubled 20 times", decode(bytes_of(c_, x), DType::f32), want);
}

TEST_F(NcclToItself, SumsAndGathersOfOneRank) {
  Collectives ranks(to_itself());
  const Tensor x = random(4000, 5);
  const std::vector<char> before = bytes_of(c_, x);
  ranks.all_reduce_sum(c_, x, "test: sum");
  EXPECT_TRUE(bytes_of(c_, x) == before);
  ranks.all_gather_shards(c_, x, "test: gather of shards");
  EXPECT_TRUE(bytes_of(c_, x) == before);
  const Tensor all = c_.scratch.make({1, x.size()}, DType::f32);
  ranks.all_gather(c_, all, x, "test: gather");
  EXPECT_TRUE(bytes_of(c_, all) == before);
}

TEST_F(NcclToItself, TwoSideBySide) {
  const auto tp = to_itself(), dp = to_itself();
  const Tensor x = random(40000, 8), y = empty(40000), z = empty(40000);
  const Parcel from_x{0, x.raw(), x.bytes()}, to_y{0, y.raw(), y.bytes()}, from_y{0, y.raw(), y.bytes()},
      to_z{0, z.raw(), z.bytes()};
  tp->exchange(c_.lane, {&from_x, 1}, {&to_y, 1}, "test: first");
  dp->exchange(c_.lane, {&from_y, 1}, {&to_z, 1}, "test: second");
  EXPECT_TRUE(bytes_of(c_, z) == bytes_of(c_, x));
}

/// As a decode step of tensor parallel ranks: once as it is, then recorded, then replayed with other data.
TEST_F(NcclToItself, IsRecordedInAGraph) {
  const auto nccl = to_itself();
  ASSERT_TRUE(nccl->can_record());
  const Tensor x = random(40000, 11), y = empty(40000), z = empty(40000);
  const Parcel from_x{0, x.raw(), x.bytes()}, to_y{0, y.raw(), y.bytes()};
  const auto step = [&] {
    add(c_, x, x, x);
    nccl->exchange(c_.lane, {&from_x, 1}, {&to_y, 1}, "test: in a graph");
    add(c_, z, y, y);
  };
  step();
  Values want = decode(bytes_of(c_, x), DType::f32);
  device::Graph graph;
  graph.record(c_.lane, step);
  for (int i = 0; i < 5; ++i) {
    graph.replay(c_.lane);
    for (double& value : want) value *= 2;
    expect_same_bits("x", decode(bytes_of(c_, x), DType::f32), want);
    Values twice = want;
    for (double& value : twice) value *= 2;
    expect_same_bits("z", decode(bytes_of(c_, z), DType::f32), twice);
  }
}

TEST_F(NcclToItself, EndsBesideAnError) {
  const Tensor x = random(4000, 9), y = empty(4000);
  const auto failing = [&] {
    const auto nccl = to_itself();
    const Parcel out{0, x.raw(), 4000}, in{0, y.raw(), 4000};
    nccl->exchange(c_.lane, {&out, 1}, {&in, 1}, "test: before the error");
    fail(Exit::data, {.what = "something else", .where = "here", .why = "it is a test", .fix = "nothing"});
  };
  expect_error(Exit::data, {"something else"}, "an error", failing);
  c_.lane.wait();
}

/// The rank that would be the second never comes.
TEST_F(NcclToItself, ARankThatNeverJoinsIsNamed) {
  const auto alone = [] { (void)make_nccl_transport(make_nccl_id(), 0, 2, "tp", 3.0); };
  expect_error(Exit::hang, {"rank 0", "ranks join", "NCCL among 2 ranks (tp)", "3 s"}, "alone", alone);
  EXPECT_NE(to_itself(), nullptr);
}

TEST_F(NcclToItself, WhatItRefusesIsSaidInItsWords) {
  const auto nccl = to_itself();
  const Tensor x = random(4000, 10);
  const Parcel out{5, x.raw(), 4000};
  expect_error(Exit::retry, {"NCCL failed in 'test: no such rank'", "NCCL among 1 ranks (dp)", "argument"},
               "a rank that is not there", [&] {
                 nccl->exchange(c_.lane, {&out, 1}, {}, "test: no such rank");
               });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::gpu_test_main(argc, argv); }

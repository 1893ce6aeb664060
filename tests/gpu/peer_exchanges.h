#pragma once
// Exchanges of ranks that write into each other's memory, beside tests/gpu/device_collectives.h: on two ranks
// with a GPU each (collectives_mpi2_test), on four that share what there is (peers_mpi4_test).

#include <functional>

#include "tests/gpu/device_collectives.h"
#include "tests/support/expect_error.h"

namespace temper {

/// One after the other, as fast as they are queued, each of what the lane has just written. Both of a kind
/// arrive in the order of the lists.
TEST_F(DeviceCollectives, LargeAndSmallParcelsTogether) {
  constexpr int64_t kLarge = int64_t{17} << 20, kSmall = 1000, kBoth = kLarge + kSmall;
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const Tensor own = g.scratch.make({2 * kBoth}, DType::f32), got = g.scratch.like(own),
               want = g.scratch.like(own);
  NormalBlock().fill(Device::cuda, own, 1, 0, rank());
  NormalBlock().fill(Device::cuda, want, 1, 0, left());
  const auto parcels = [&](int peer, const Tensor& of) {
    std::vector<Parcel> list;
    for (const int64_t begin : {int64_t{0}, kBoth})
      for (const Tensor& t : {rows(of, begin, begin + kLarge), rows(of, begin + kLarge, begin + kBoth)})
        list.push_back({peer, t.raw(), t.bytes()});
    return list;
  };
  for (int round = 0; round < 5; ++round) {
    for (const Tensor& t : {own, want}) add(g, t, t, t);
    copy_late(g.lane, got, own);  // what must not come after
    device_->exchange(g, parcels(right(), own), parcels(left(), got), "test: large and small");
    add(g, got, got, want);
    add(g, want, want, want);
    EXPECT_TRUE(bytes_of(g, got) == bytes_of(g, want)) << "round " << round;
    add(g, own, own, own);
  }
}

/// One call of a rank is several of the other, as between stages of a pipeline. Ranks in pairs.
class CallsCutOtherwise : public DeviceCollectives {
 protected:
  /// Three parcels each way. The other side's calls: r takes one, s sends what was made of the next.
  void run(int64_t count, std::string_view calls) {
    Ctx& g = gpu_.ctx();
    const ArenaScope scope(g.scratch);
    const int other = rank() ^ 1;
    const Tensor there = g.scratch.make({3, count}, DType::f32), back = g.scratch.like(there);
    const auto part = [](const Tensor& t, int i) { return rows(t, i, i + 1); };
    const auto all_of = [&](const Tensor& t) {
      std::vector<Parcel> parcels;
      for (int i = 0; i < 3; ++i) parcels.push_back({other, part(t, i).raw(), part(t, i).bytes()});
      return parcels;
    };
    for (int round = 0; round < 5; ++round) {
      NormalBlock().fill(Device::cuda, there, 1, 0, round);
      if (rank() < other) {
        device_->exchange(g, all_of(there), all_of(back), "test: all at once");
        add(g, there, there, there);
        EXPECT_TRUE(bytes_of(g, back) == bytes_of(g, there)) << count << ", " << calls << ", " << round;
      } else {
        int taken = 0, sent = 0;
        for (const char call : calls)
          if (call == 'r') {
            device_->recv(g, part(there, taken), other, "test: one by one");
            add(g, part(back, taken), part(there, taken), part(there, taken));
            ++taken;
          } else {
            device_->send(g, part(back, sent++), other, "test: and back");
          }
        g.lane.wait();
      }
    }
  }
};

constexpr int64_t kCutCounts[] = {76, int64_t{3} << 20};

TEST_F(CallsCutOtherwise, WaitForNothingBehind) {
  for (const int64_t count : kCutCounts) run(count, "rsrsrs");
}

/// More than what every transport promises.
TEST_F(CallsCutOtherwise, MayWaitForAllThatIsSent) {
  if (std::string_view(device_->carrier()) == "NCCL") GTEST_SKIP() << "its parcels of a call go in turn";
  for (const int64_t count : kCutCounts) run(count, "rrrsss");
}

/// At odd addresses, other ones on the two sides; around the size above which nothing marks the bytes.
TEST_F(DeviceCollectives, SmallParcelsMayLieAnywhere) {
  constexpr int64_t kSizes[] = {1, 7, 8, 9, 4095, SmallFlow::kMarkedBytes - 3, SmallFlow::kMarkedBytes + 5};
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const Tensor own = g.scratch.make({1 << 17}, DType::f32), theirs = g.scratch.like(own),
               got = g.scratch.like(own);
  for (int round = 0; round < 6; ++round) {
    NormalBlock().fill(Device::cuda, own, 1, 0, size() * round + rank());
    NormalBlock().fill(Device::cuda, theirs, 1, 0, size() * round + left());
    std::vector<Parcel> out, in;
    int64_t from = 1, to = round;
    for (const int64_t bytes : kSizes) {
      out.push_back({right(), static_cast<char*>(own.raw()) + from, bytes});
      in.push_back({left(), static_cast<char*>(got.raw()) + to, bytes});
      from += bytes + 3;
      to += bytes + 2;
    }
    device_->exchange(g, out, in, "test: at odd places");
    const std::vector<char> wanted = bytes_of(g, theirs), came = bytes_of(g, got);
    from = 1, to = round;
    for (const int64_t bytes : kSizes) {
      EXPECT_EQ(std::memcmp(came.data() + to, wanted.data() + from, static_cast<size_t>(bytes)), 0)
          << bytes << " bytes, round " << round;
      from += bytes + 3;
      to += bytes + 2;
    }
  }
}

/// More than what goes by a kernel where nothing is recorded, of several pieces in several rounds.
TEST_F(DeviceCollectives, AreRecordedInAGraph) {
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const Tensor mine = g.scratch.make({(int64_t{5} << 20) + 3}, DType::f32), want = g.scratch.like(mine),
               all = g.scratch.make({size(), mine.size()}, DType::f32);
  NormalBlock().fill(Device::cuda, mine, 1, 0, rank());
  const auto step = [&] {
    add(g, mine, mine, mine);
    device_->all_gather(g, all, mine, "test: recorded");
  };
  step();
  device::Graph graph;
  graph.record(g.lane, step);
  for (int i = 0; i < 20; ++i) graph.replay(g.lane);
  device_->all_gather(g, all, mine, "test: after the graph");
  for (int of = 0; of < size(); ++of) {
    NormalBlock().fill(Device::cuda, want, 1, 0, of);
    for (int i = 0; i < 21; ++i) add(g, want, want, want);
    EXPECT_TRUE(bytes_of(g, rows(all, of, of + 1)) == bytes_of(g, want)) << "of rank " << of;
  }
}

/// Sums of what goes by copy engines where nothing is recorded, of more pieces than there are places, the
/// last one smaller than others: what blocks of a kernel have of it must not lie where others still read.
TEST_F(DeviceCollectives, SumsAreRecordedInAGraph) {
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const Tensor mine = g.scratch.make({(int64_t{11} << 20) + 3}, DType::f32), sum = g.scratch.like(mine),
               want = g.scratch.like(mine);
  NormalBlock().fill(Device::cuda, mine, 1, 0, rank());
  const auto step = [&] {
    add(g, mine, mine, mine);
    device_->all_reduce_sum_into(g, sum, mine, "test: a recorded sum");
  };
  step();
  device::Graph graph;
  graph.record(g.lane, step);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 8; ++i) graph.replay(g.lane);
    device_->all_reduce_sum_into(g, want, mine, "test: after the graph");
    EXPECT_TRUE(bytes_of(g, sum) == bytes_of(g, want)) << "round " << round;
  }
}

/// Whoever fails leaves exchanges behind that never end; what else was queued on the lane goes on.
TEST_F(DeviceCollectives, AnErrorDoesNotWaitForParcelsThatNeverCome) {
  Ctx& c = gpu_.ctx();
  const ArenaScope scope(c.scratch);
  // More pieces than there are places for.
  const Tensor large = c.scratch.make({size() + 2, 8 << 20}, DType::f32);
  const Tensor small = c.scratch.make({size() + 1, 100}, DType::f32), all = rows(small, 0, size()),
               own = rows(small, size(), size() + 1);
  using Calls = std::function<void(Collectives&)>;
  for (const Calls& calls :
       {Calls([&](Collectives& ranks) { ranks.send(c, large, right(), "test: is not taken"); }),
        Calls([&](Collectives& ranks) { ranks.recv(c, large, left(), "test: comes never"); }),
        Calls([&](Collectives& ranks) {
          if (rank() == 0) ranks.all_gather(c, all, own, "test: is gathered by nobody else");
        })}) {
    const auto failing = [&] {
      const std::unique_ptr<Collectives> ranks = collectives_of_gpus(*comm_);
      ranks->all_gather(c, rows(large, 0, size()), rows(large, size(), size() + 1), "test: is copied");
      ranks->all_gather(c, all, own, "test: is gathered");
      calls(*ranks);
      fail(Exit::data, {.what = "something else", .where = "here", .why = "it is a test", .fix = "nothing"});
    };
    expect_error(Exit::data, {"something else"}, "an error", failing);
    device::fill(c.lane, large.raw(), 0, large.bytes());
    c.lane.wait();
  }
}

/// Exchanges of one axis on two lanes, which nothing but the transport keeps in turn.
TEST_F(DeviceCollectives, SmallParcelsOfTwoLanesTakeTurns) {
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  if (std::string_view(device_->carrier()) == "NCCL") GTEST_SKIP() << "its lanes have no turns";
  constexpr int64_t kCount = 5003;
  const Tensor a = g.scratch.make({kCount}, DType::f32), b = g.scratch.like(a), got_a = g.scratch.like(a),
               got_b = g.scratch.like(a), slow = g.scratch.make({64 << 20}, DType::f32);
  NormalBlock().fill(Device::cuda, a, 1, 0, rank());
  NormalBlock().fill(Device::cuda, b, 1, 0, 10 + rank());
  Ctx beside = device_->beside(g);
  beside.lane.follow(g.lane);
  for (int round = 0; round < 50; ++round) {
    if (round % size() == rank()) device::fill(g.lane, slow.raw(), 0, slow.bytes());
    device_->send_recv(g, a, right(), got_a, left(), "test: around");
    device_->send_recv(beside, b, right(), got_b, left(), "test: around beside");
  }
  g.lane.follow(beside.lane);
  g.lane.wait();
  NormalBlock().fill(Device::cuda, a, 1, 0, left());
  NormalBlock().fill(Device::cuda, b, 1, 0, 10 + left());
  EXPECT_TRUE(bytes_of(g, got_a) == bytes_of(g, a));
  EXPECT_TRUE(bytes_of(g, got_b) == bytes_of(g, b));
}

}  // namespace temper

#pragma once
// Collectives on device memory against the same ones on host memory: the same bits at odd sizes. Ranks that
// share a GPU: through pinned host memory (collectives_mpi3_test); with a GPU each: by peer memory
// (collectives_mpi2_test; peers_mpi4_test on fewer GPUs, too), and by NCCL to other hosts (hosts_mpi2_test,
// hosts_mpi3_test).

#include <cstring>

#include "src/comm/mailbox.h"
#include "src/core/stopwatch.h"
#include "src/ops/elementwise.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/late_writer.h"
#include "tests/support/normal_block.h"
#include "tests/support/ranks.h"

namespace temper {

/// The test program says what is to carry the parcels, and makes collectives that have it.
const char* expected_carrier();
std::unique_ptr<Collectives> collectives_of_gpus(Comm& all);
/// The collectives are made as the program makes them.
inline std::unique_ptr<Collectives> chosen_collectives() {
  return test_world->make_collectives(0, test_world->rank(), Device::cuda, "dp", kTestWaitLimit);
}

class DeviceCollectives : public OnRanks {
 protected:
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  int right() const { return (rank() + 1) % size(); }
  int left() const { return (rank() + size() - 1) % size(); }

  /// `op` on the values of this rank, in the memory of each backend: equal bits.
  template <class Op>
  void compare(DType dtype, int64_t count, Op&& op) {
    TestTensor host(cpu_.ctx(), round_to(normal_values(count, 100 + static_cast<uint64_t>(rank())), dtype),
                    dtype, {count});
    Ctx &c = cpu_.ctx(), &g = gpu_.ctx();
    ArenaScope on_cpu(c.scratch), on_gpu(g.scratch);
    const Tensor here = host, there = g.scratch.like(here);
    device::copy_to_device(g.lane, there.raw(), here.data, here.bytes());
    op(c, *host_, here);
    op(g, *device_, there);
    std::vector<char> got(static_cast<size_t>(there.bytes()));
    device::copy_from_device(g.lane, got.data(), there.data, there.bytes());
    EXPECT_EQ(std::memcmp(got.data(), here.data, got.size()), 0) << dtype_name(dtype) << ", " << count;
  }

  Backend cpu_{Device::cpu}, gpu_{Device::cuda};
  std::unique_ptr<Collectives> host_ = collectives_of_all(), device_ = collectives_of_gpus(*comm_);
};

constexpr int64_t kCounts[] = {1, 15, 16, 17, 1000, 300001, (int64_t{30} << 20) + 75};

TEST_F(DeviceCollectives, GoByWhatTheGpusAllow) { EXPECT_STREQ(device_->carrier(), expected_carrier()); }

TEST_F(DeviceCollectives, SumsHaveTheBitsOfHostMemory) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t count : kCounts)
      compare(dtype, count, [](Ctx& c, Collectives& ranks, const Tensor& flat) {
        ranks.all_reduce_sum(c, flat, "test: sum");
      });
}

TEST_F(DeviceCollectives, SumsAddedElsewhereHaveTheBitsOfHostMemory) {
  for (const int64_t count : kCounts)
    compare(DType::f32, count, [this](Ctx& c, Collectives& ranks, const Tensor& flat) {
      const FlatRange range = shard_range(flat.size(), rank(), size());
      const ArenaScope scope(c.scratch);
      const Tensor own = rows(flat, range.begin, range.end), kept = c.scratch.like(own);
      device::copy(c.lane, kept.raw(), own.data, own.bytes());
      ranks.reduce_scatter_onto(c, kept, flat, "test: a sum elsewhere");
      device::copy(c.lane, own.raw(), kept.data, own.bytes());
    });
}

/// Parts are wider than their sum, which is rounded once.
TEST_F(DeviceCollectives, SumsOfFp32InBf16HaveTheBitsOfHostMemory) {
  for (const int64_t count : kCounts)
    compare(DType::f32, count, [](Ctx& c, Collectives& ranks, const Tensor& flat) {
      const ArenaScope scope(c.scratch);
      const Tensor sum = c.scratch.make({flat.size()}, DType::bf16);
      ranks.all_reduce_sum_into(c, sum, flat, "test: a sum in bf16");
      widen(c, flat, sum);
    });
}

/// Ranks get a large parcel from each other one, a small one, or nothing, by turns.
TEST_F(DeviceCollectives, SumsOfRangesOfAnySize) {
  constexpr int64_t kSizes[] = {(int64_t{9} << 20) + 3, 0, (int64_t{3} << 20) - 1, 5};  // elements
  for (int shift = 0; shift < 4; ++shift) {
    std::vector<FlatRange> ranges;
    for (int64_t begin = 0; std::ssize(ranges) < size(); begin = ranges.back().end)
      ranges.push_back({begin, begin + kSizes[(ranges.size() + static_cast<size_t>(shift)) % 4]});
    compare(DType::f32, ranges.back().end, [&](Ctx& c, Collectives& ranks, const Tensor& flat) {
      const auto [begin, end] = ranges[static_cast<size_t>(rank())];
      ranks.reduce_scatter_ranges(c, rows(flat, begin, end), flat, ranges, "test: a sum of ranges");
      ranks.all_gather_ranges(c, flat, ranges, "test: ranges");
    });
  }
}

/// Sums of several pieces, of which each is added while the next one is on its way: after a kernel that lets
/// its successor begin before it has written, again and again in the same memory, and used at once.
TEST_F(DeviceCollectives, SumsOfManyPiecesAreInOrderWithTheLane) {
  constexpr int64_t kCount = (int64_t{72} << 20) + 32, kRounds = 3;
  Ctx &c = cpu_.ctx(), &g = gpu_.ctx();
  ArenaScope on_cpu(c.scratch), on_gpu(g.scratch);
  const Tensor want = c.scratch.make({kCount}, DType::f32), flat = g.scratch.make({kCount}, DType::f32),
               from = g.scratch.like(flat), got = g.scratch.like(flat);
  for (int64_t round = 0; round < kRounds; ++round) {
    NormalBlock().fill(Device::cuda, from, 1, 0, round * size() + rank());
    device::copy_from_device(g.lane, want.raw(), from.data, from.bytes());
    copy_late(g.lane, flat, from);
    device_->all_reduce_sum(g, flat, "test: many pieces");
    add(g, got, flat, flat);
    device::fill(g.lane, flat.raw(), 0xff, flat.bytes());
    host_->all_reduce_sum(c, want, "test: the same on the host");
    const std::vector<float> sums = to_host<float>(g, got);
    const auto* const wanted = want.as<float>();
    int64_t different = 0;
    for (int64_t i = 0; i < kCount; ++i) different += sums[static_cast<size_t>(i)] != wanted[i] + wanted[i];
    EXPECT_EQ(different, 0) << "round " << round;
  }
}

/// A sum on the lane beside, in its own pieces, while the caller's lane is busy with something else.
TEST_F(DeviceCollectives, SumsBesideOtherWork) {
  constexpr int64_t kCount = (int64_t{72} << 20) + 32;
  Ctx& g = gpu_.ctx();
  ArenaScope on_gpu(g.scratch);
  const Tensor flat = g.scratch.make({kCount}, DType::f32), again = g.scratch.like(flat),
               other = g.scratch.like(flat);
  NormalBlock().fill(Device::cuda, other, 1, 0, rank());
  device::copy(g.lane, again.raw(), other.data, other.bytes());
  device_->reduce_scatter_sum(g, again, "test: a sum");
  const Tensor pieces = device_->make_pieces(g, kCount, DType::f32);
  copy_late(g.lane, flat, other);
  Ctx beside = device_->beside(g);
  beside.lane.follow(g.lane);
  device_->reduce_scatter_sum(beside, flat, "test: a sum beside", pieces);
  for (int i = 0; i < 20; ++i) add(g, other, other, other);
  g.lane.follow(beside.lane);
  add(g, flat, flat, again);
  add(g, again, again, again);
  const FlatRange own = shard_range(kCount, rank(), size());
  EXPECT_TRUE(bytes_of(g, rows(flat, own.begin, own.end)) == bytes_of(g, rows(again, own.begin, own.end)));
}

TEST_F(DeviceCollectives, GathersCopy) {
  for (const int64_t count : kCounts)
    compare(DType::f32, count, [](Ctx& c, Collectives& ranks, const Tensor& flat) {
      ranks.all_gather_shards(c, flat, "test: gather of shards");
    });
}

TEST_F(DeviceCollectives, SendAndReceiveGoAround) {
  for (const int64_t count : {int64_t{70001}, kCounts[6]})
    compare(DType::f32, count, [this](Ctx& c, Collectives& ranks, const Tensor& flat) {
      for (int from = 0; from + 1 < size(); ++from) {
        if (rank() == from) ranks.send(c, flat, from + 1, "test: send");
        if (rank() == from + 1) ranks.recv(c, flat, from, "test: receive");
      }
    });
}

/// As stages that generate: one sends what it made and takes what comes back in one call, the other one sends
/// first, before anything else went between them. More than goes in a step by way of host memory. Ranks in
/// pairs.
TEST_F(DeviceCollectives, OneSideMaySendBeforeItTakes) {
  constexpr int64_t kCount = (int64_t{30} << 20) + 1;
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const int other = rank() ^ 1;
  if (other >= size()) return;
  const Tensor own = g.scratch.make({kCount}, DType::f32), got = g.scratch.like(own),
               want = g.scratch.like(own);
  NormalBlock().fill(Device::cuda, own, 1, 0, rank());
  NormalBlock().fill(Device::cuda, want, 1, 0, other);
  if (rank() < other) {
    device_->send_recv(g, own, other, got, other, "test: both at once");
  } else {
    device_->send(g, own, other, "test: send first");
    device_->recv(g, got, other, "test: then take");
  }
  EXPECT_TRUE(bytes_of(g, got) == bytes_of(g, want));
}

/// Bytes of what a rank sends to another in a round: of every way that there is to go, and of several pieces.
inline std::vector<int64_t> drawn_parcels(int64_t key) {
  constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;
  constexpr int64_t kBytes[] = {
      0, 3, 5000, 128 * kKiB, 128 * kKiB + 4, 8 * kMiB, 8 * kMiB + 4, 5 * kMiB + 9, 32 * kMiB, 70 * kMiB + 1};
  std::vector<int64_t> bytes;
  for (const int32_t drawn : random_ids(2, std::ssize(kBytes), static_cast<uint64_t>(key)))
    bytes.push_back(kBytes[drawn]);
  return bytes;
}

/// Parcels of every rank for every other one at odd places, in lists that have them in turns.
TEST_F(DeviceCollectives, AnyParcelsBetweenAllRanks) {
  constexpr int64_t kParcel = int64_t{71} << 20, kPeer = 2 * kParcel;
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const Tensor own = g.scratch.make({size() * kPeer / 4}, DType::f32), got = g.scratch.like(own),
               want = g.scratch.like(own), theirs = g.scratch.like(own);
  const auto place = [](const Tensor& t, int peer, int i) {
    return static_cast<char*>(t.raw()) + peer * kPeer + i * kParcel + peer % 3;
  };
  for (int round = 0; round < 6; ++round) {
    const auto bytes = [&](int from, int to, int i) {
      return drawn_parcels((round * size() + from) * size() + to)[static_cast<size_t>(i)];
    };
    for (const Tensor& t : {got, want}) device::fill(g.lane, t.raw(), 0, t.bytes());
    NormalBlock().fill(Device::cuda, own, 1, 0, round * size() + rank());
    std::vector<Parcel> out, in;
    for (int i = 0; i < 2; ++i)
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank()) continue;
        out.push_back({peer, place(own, peer, i), bytes(rank(), peer, i)});
        in.push_back({peer, place(got, peer, i), bytes(peer, rank(), i)});
      }
    device_->exchange(g, out, in, "test: any parcels");
    for (int from = 0; from < size(); ++from) {
      if (from == rank()) continue;
      NormalBlock().fill(Device::cuda, theirs, 1, 0, round * size() + from);
      for (int i = 0; i < 2; ++i)
        device::copy(g.lane, place(want, from, i), place(theirs, rank(), i), bytes(from, rank(), i));
      g.lane.wait();
    }
    EXPECT_TRUE(bytes_of(g, got) == bytes_of(g, want)) << "round " << round;
  }
}

/// A rank that others wait for on the GPU waits for their messages itself, which are longer than what MPI
/// sends by itself: they come while the host of the sender waits for its lane, brings memory that is not
/// pinned, or has queued more than a driver takes.
TEST_F(DeviceCollectives, MessagesMoveOnWhileTheHostWaitsForTheGpu) {
  const std::unique_ptr<Mailbox> mailbox = test_world->make_mailbox(kTestWaitLimit);
  Ctx& c = gpu_.ctx();
  const ArenaScope scope(c.scratch);
  const Tensor x = c.scratch.make({1 << 20}, DType::f32), all = c.scratch.make({size(), 1 << 20}, DType::f32);
  device::fill(c.lane, x.raw(), 0, x.bytes());
  const std::vector<float> numbers(1 << 20, 1.0f);
  const std::string message(size_t{20} << 20, 'm');
  device_->all_gather(c, all, x, "test: connections");
  for (const int launches : {0, 5000}) {
    if (rank() == size() - 1) {
      for (int from = 0; from + 1 < size(); ++from)
        for (const Stopwatch waited; !mailbox->poll(0);) mailbox->pause(waited.seconds(), "test: messages");
    } else {
      mailbox->post(size() - 1, 0, message);
    }
    device_->all_gather(c, all, x, "test: gather");
    for (int i = 0; i < launches; ++i) add(c, x, x, x);
    if (launches == 0) device::copy_to_device(c.lane, x.raw(), numbers.data(), x.bytes());
    c.lane.wait();
  }
  while (mailbox->outgoing_bytes(0) > 0) mailbox->pause(0, "test: what was sent");
  for (const float value : to_host<float>(c, all)) ASSERT_EQ(value, 1.0f);
}

}  // namespace temper

#pragma once
// Collectives on device memory against the same ones on host memory: the same bits at odd sizes, below and
// above what is staged at once. Ranks that share a GPU: through pinned host memory (collectives_mpi3_test);
// with a GPU each: by NCCL (collectives_mpi2_test).

#include <cstring>

#include "src/comm/mailbox.h"
#include "src/core/stopwatch.h"
#include "src/ops/elementwise.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/ranks.h"

namespace temper {

/// Of the test program: what is to carry the parcels.
const char* expected_carrier();

class DeviceCollectives : public OnRanks {
 protected:
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }

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
  std::unique_ptr<Collectives> host_ = collectives_of_all(),
                               device_ = test_world->make_collectives(0, rank(), Device::cuda, "dp",
                                                                      kTestWaitLimit);
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

TEST_F(DeviceCollectives, GathersCopy) {
  for (const int64_t count : kCounts)
    compare(DType::f32, count, [](Ctx& c, Collectives& ranks, const Tensor& flat) {
      ranks.all_gather_shards(c, flat, "test: gather of shards");
    });
}

TEST_F(DeviceCollectives, SendAndReceiveGoAround) {
  compare(DType::f32, 70001, [this](Ctx& c, Collectives& ranks, const Tensor& flat) {
    for (int from = 0; from + 1 < size(); ++from) {
      if (rank() == from) ranks.send(c, flat, from + 1, "test: send");
      if (rank() == from + 1) ranks.recv(c, flat, from, "test: receive");
    }
  });
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

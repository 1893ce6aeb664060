// Weights that a rank reads out of the GPU memory of the ranks that train them: two that share a model, and
// one that generates with all of it. Ranks that share a GPU read each other's memory as those with one each
// do.

#include <cstdlib>
#include <cstring>

#include "src/core/gpu/peer_memory.h"
#include "src/ops/backend.h"
#include "src/run/exchange/weight_sync.h"
#include "tests/gpu/gpu_support.h"
#include "tests/run/exchange/shared_store.h"
#include "tests/support/expect_error.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

constexpr int kReceiver = 2, kNote = 50;

class WeightsOnGpus : public OnRanks {
 protected:
  void make(DType dtype, bool trained = true) {
    make_store(weights, receives() ? ShardPlace{} : ShardPlace{comm_->rank(), 2}, dtype, 99, Device::cuda,
               trained && !receives());
    sync.connect(receives() ? nullptr : &weights, receives() ? &weights : nullptr);
  }
  bool receives() const { return comm_->rank() == kReceiver; }
  void publish(int64_t version) {
    fill_store(weights, static_cast<uint64_t>(version));
    sync.publish(gpu.ctx(), weights, version);
  }
  bool receive(int64_t version) { return sync.receive(gpu.ctx(), weights, nullptr, version); }
  bool is_version(int64_t version) {
    ParameterStore want;
    make_store(want, {}, weights.dtype(), static_cast<uint64_t>(version));
    const Tensor flat = weights.flat_values(), host = want.flat_values();
    std::vector<char> got(static_cast<size_t>(flat.bytes()));
    device::copy_from_device(gpu.ctx().lane, got.data(), flat.raw(), flat.bytes());
    return std::memcmp(got.data(), host.raw(), got.size()) == 0;
  }

  /// The receiver says so before it reads: the trainers do not go on before.
  void expect_read_before_they_change(DType dtype) {
    make(dtype);
    EXPECT_EQ(sync.num_readers(), receives() ? 0u : 1u);
    for (int64_t version = 0; version < 4; ++version) {
      if (receives()) {
        for (const int trainer : {0, 1}) mailbox->post(trainer, kNote, "reads next");
        ASSERT_TRUE(receive(version));
        EXPECT_TRUE(is_version(version)) << dtype_name(dtype) << ", " << version;
      } else {
        publish(version);
        sync.wait_read();
        EXPECT_TRUE(mailbox->poll(kNote)) << "version " << version << " was not read";
      }
    }
    int64_t rows = 0;
    for (const Parameter& p : weights.list()) rows += p.value.bytes();
    constexpr int64_t kNotices = 2 * 16;  // of two trainers
    if (receives()) {
      EXPECT_EQ(sync.bytes_moved(), 4 * (rows + kNotices));
    }
  }

  Backend gpu{Device::cuda};
  std::unique_ptr<Mailbox> mailbox = test_world->make_mailbox(kTestWaitLimit);
  EndOfRun end{*mailbox, RoleRanks{{kReceiver}, {}, {0, 1}}};
  WeightSync sync{*mailbox, WeightRoutes{{0, 1}, {{{Axis::tp, 2}}}, {{kReceiver, {}}}, true}, 1, end};
  ParameterStore weights;
};

TEST_F(WeightsOnGpus, AreReadBeforeTheyChange) { expect_read_before_they_change(DType::bf16); }
TEST_F(WeightsOnGpus, InFp32Too) { expect_read_before_they_change(DType::f32); }

/// Here, between the sender's digest and the receiver's.
TEST_F(WeightsOnGpus, ThatAreChangedOnTheWayStopTheRun) {
  make(DType::bf16);
  if (!receives()) {
    sync.publish(gpu.ctx(), weights, 0);
    if (comm_->rank() == 1) device::clear(Device::cuda, weights.list().front().value.raw(), 2);
  }
  comm_->barrier("test: changed");
  if (receives())
    expect_error(Exit::storage, {"changed on their way", "trainer rank 1"}, "changed", [&] { receive(0); });
  comm_->barrier("test: found");
  while (mailbox->poll(kRead)) {
  }
}

/// What a checkpoint held goes by message: the memory has the next one at once. What is kept for a checkpoint
/// is copied before the weights change.
TEST_F(WeightsOnGpus, OlderOnesComeToo) {
  make(DType::bf16);
  sync.start(7);
  if (receives()) {
    for (const int64_t version : {5, 6, 7, 8}) {
      ASSERT_TRUE(receive(version));
      EXPECT_TRUE(is_version(version)) << version;
    }
    return;
  }
  for (const int64_t version : {5, 6}) {
    fill_store(weights, static_cast<uint64_t>(version));
    sync.publish_older(gpu.ctx(), weights, version);
  }
  publish(7);
  sync.wait_read();
  publish(8);
  sync.wait_read();
  for (const int64_t version : {7, 8}) {
    ParameterStore want;
    make_store(want, {comm_->rank(), 2}, DType::bf16, static_cast<uint64_t>(version));
    int64_t rows = 0;
    EXPECT_TRUE(sync.look_into_sent(
        weights, version, [&](const Parameter& p, const WeightPiece& piece, const char* bytes) {
          const Parameter& of = want.list()[piece.parameter];
          const int64_t row = piece.bytes / piece.move.rows;
          const char* const host = static_cast<const char*>(of.value.raw());
          EXPECT_EQ(std::memcmp(bytes, host + piece.move.from * row, static_cast<size_t>(piece.bytes)), 0)
              << p.spec.name << ", version " << version;
          rows += piece.move.rows;
        }));
    EXPECT_GT(rows, 0);
  }
}

/// Memory that grows piece by piece (ZeRO-3) cannot be opened.
TEST_F(WeightsOnGpus, GoByMessageFromMemoryThatIsNotShared) {
  make(DType::f32, false);
  EXPECT_EQ(sync.num_readers(), 0u);
  for (int64_t version = 0; version < 2; ++version) {
    if (!receives()) publish(version);
    if (!receives()) continue;
    ASSERT_TRUE(receive(version));
    EXPECT_TRUE(is_version(version)) << version;
  }
}

TEST_F(WeightsOnGpus, HandlesOfOtherHostsOpenNothing) {
  make(DType::f32);
  EXPECT_EQ(device::PeerMemory::open(""), nullptr);
  EXPECT_EQ(device::PeerMemory::open(std::string(101, 'x')), nullptr);
  if (!receives()) {
    std::string handle = device::memory_handle(weights.flat_values().raw());
    ASSERT_FALSE(handle.empty());
    handle[0] = handle[0] == 'a' ? 'b' : 'a';
    EXPECT_EQ(device::PeerMemory::open(handle), nullptr);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (temper::device::find_gpus().gpus.empty()) return 1;
  const std::vector<int> gpus = temper::device::find_gpus().gpus;
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  temper::device::select_gpu(gpus[static_cast<size_t>(rank ? std::atoi(rank) : 0) % gpus.size()]);
  return temper::run_tests_on_ranks(argc, argv, 3);
}

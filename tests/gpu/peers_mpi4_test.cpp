// Four ranks that write into each other's memory on however few GPUs: each has several peers at once. Kernels
// of ranks that share a GPU take turns of milliseconds.

#include "src/comm/gpu/peer_transport.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/gpu/peer_exchanges.h"

const char* temper::expected_carrier() { return "peer memory"; }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm& all) {
  std::unique_ptr<Neighbours> neighbours = Neighbours::meet(all, "this host");
  CHECK(neighbours && neighbours->all(), "ranks that do not reach each other's memory");
  return std::make_unique<Collectives>(
      make_peer_transport(std::move(neighbours), nullptr, all.rank(), all.size(), "test"));
}

namespace temper {

/// An odd number takes other turns. Sums and gathers of large parcels, several after each other.
TEST_F(DeviceCollectives, ThreeOfTheRanks) {
  const std::unique_ptr<Comm> three = test_world->make_comm({0, 1, 2}, kTestWaitLimit);
  if (!three) return;
  const std::unique_ptr<Collectives> ranks = collectives_of_gpus(*three);
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const Tensor flat = g.scratch.make({(int64_t{75} << 20) + 4}, DType::f32), want = g.scratch.like(flat),
               part = g.scratch.like(flat);
  for (int round = 0; round < 4; ++round) {
    NormalBlock().fill(Device::cuda, want, 1, 0, round);
    for (int of = 1; of < 3; ++of) {
      NormalBlock().fill(Device::cuda, part, 1, 0, 10 * of + round);
      add(g, want, want, part);
    }
    NormalBlock().fill(Device::cuda, part, 1, 0, 10 * rank() + round);
    copy_late(g.lane, flat, part);
    ranks->all_reduce_sum(g, flat, "test: a sum of three");
    EXPECT_TRUE(bytes_of(g, flat) == bytes_of(g, want)) << "round " << round;
  }
}

}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_gpus(argc, argv, 4); }

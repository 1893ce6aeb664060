// Three ranks that share a GPU.

#include "tests/gpu/device_collectives.h"

const char* temper::expected_carrier() { return "MPI, by way of host memory"; }
std::unique_ptr<temper::Collectives> temper::collectives_of_gpus(Comm&) { return chosen_collectives(); }

namespace temper {
namespace {

/// Two ranks go step by step, since there is too much between them for one time, the third one at once.
TEST_F(DeviceCollectives, StepByStepBesideAtOnce) {
  constexpr int64_t kCounts[] = {int64_t{150} << 20, (5 << 20) + 1, (17 << 20) + 3};
  Ctx& g = gpu_.ctx();
  const ArenaScope scope(g.scratch);
  const auto room = [&](int from) { return g.scratch.make({2, kCounts[from]}, DType::f32); };
  const Tensor own = room(rank()), got = room(left()), want = room(left());
  NormalBlock().fill(Device::cuda, own, 1, 0, rank());
  NormalBlock().fill(Device::cuda, want, 1, 0, left());
  const auto parcels = [](const Tensor& both, int peer) {
    std::vector<Parcel> list;
    for (const int64_t i : {0, 1}) list.push_back({peer, rows(both, i, i + 1).raw(), both.bytes() / 2});
    return list;
  };
  device_->exchange(g, parcels(own, right()), parcels(got, left()), "test: much and little");
  EXPECT_TRUE(bytes_of(g, got) == bytes_of(g, want));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (temper::device::find_gpus().gpus.empty()) return 1;
  temper::device::select_gpu(0);
  return temper::run_tests_on_ranks(argc, argv, 3);
}

// New weights from a rank that trains to one that generates, as the run sends them
// (run/exchange/weight_sync.h), beside a plain copy of as many bytes by the same way: seconds of the slower
// rank, from publishing to the receiver's comparison of digests. By message no more than 1 GB is sent.
// usage: mpirun -n 2 weights_bench [GB]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "src/core/gpu/peer_memory.h"
#include "src/ops/backend.h"
#include "src/run/exchange/weight_sync.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/support/normal_block.h"

namespace temper {
namespace {

constexpr int kRounds = 5;

class Bench {
 public:
  Bench(const MpiSession& mpi, double gigabytes) : mpi_(mpi), trains_(mpi.rank() == 0) {
    constexpr int64_t kWidth = 4096;
    const auto rows = static_cast<int64_t>(gigabytes * 1e9 / (2 * kWidth)) / kTensors;
    for (int64_t i = 0; i < kTensors; ++i) {
      const std::string name = fmt::format("w{}", i);
      weights_.add({.name = name, .parts = {{name, rows}}, .shape = {rows, kWidth}, .unit = name});
    }
    weights_.allocate(DType::bf16, trains_, Device::cuda);
    NormalBlock().fill(Device::cuda, weights_.flat_values(), 1, 0, mpi.rank());
  }
  void messages() { report("by message, through host memory", sync(false)); }
  void reading() {
    report("out of the trainer's GPU memory", sync(true));
    report("a plain copy out of it", plain_copy());
  }

 private:
  static constexpr int64_t kTensors = 100;

  template <class Call>
  double seconds(Call&& call) {
    double best = 1e9;
    for (int i = 0; i < kRounds; ++i) {
      all_->barrier("bench: before");
      const auto start = std::chrono::steady_clock::now();
      call(i);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, all_->all_reduce_max(took.count(), "bench: slower rank"));
    }
    return best;
  }
  double sync(bool connected) {
    EndOfRun end(*mailbox_, ranks_);
    WeightSync sync(*mailbox_, WeightRoutes{{0}, {1, 1}, {{1, {}}}, true}, 0, end);
    if (connected) sync.connect(trains_ ? &weights_ : nullptr, trains_ ? nullptr : &weights_);
    const double took = seconds([&](int64_t version) {
      if (!trains_) {
        sync.receive(gpu_.ctx(), weights_, nullptr, version);
        return;
      }
      sync.publish(gpu_.ctx(), weights_, version);
      sync.wait_read();
    });
    sync.disconnect();
    all_->barrier("bench: nobody reads");
    return took;
  }
  double plain_copy() {
    const Tensor flat = weights_.flat_values();
    const std::string handle =
        all_->broadcast(trains_ ? device::memory_handle(flat.raw()) : "", 0, "bench: handle");
    const std::unique_ptr<device::PeerMemory> from = trains_ ? nullptr : device::PeerMemory::open(handle);
    CHECK(trains_ || from, "the other rank's memory cannot be opened");
    return seconds([&](int64_t) {
      if (trains_) return;
      device::copy(gpu_.ctx().lane, flat.raw(), from->base(), flat.bytes());
      gpu_.ctx().lane.wait();
    });
  }
  void report(const char* what, double took) const {
    const double gigabytes = 1e-9 * static_cast<double>(weights_.value_bytes());
    if (mpi_.rank() == 0)
      std::printf("| %.2f GB of weights %s | %.4f s | %.1f GB/s |\n", gigabytes, what, took,
                  gigabytes / took);
  }

  const MpiSession& mpi_;
  bool trains_;
  Backend gpu_{Device::cuda};
  std::unique_ptr<Comm> all_ = mpi_.make_comm_of_all(600);
  std::unique_ptr<Mailbox> mailbox_ = mpi_.make_mailbox(600);
  RoleRanks ranks_{{1}, {}, {0}};
  ParameterStore weights_;
};

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (!temper::select_gpu_of_rank()) return 1;
  const temper::MpiSession mpi(&argc, &argv);
  if (mpi.size() != 2) {
    std::fprintf(stderr, "usage: mpirun -n 2 %s [GB]\n", argv[0]);
    return 64;
  }
  const double gigabytes = argc > 1 ? std::atof(argv[1]) : 16;
  temper::Bench(mpi, std::min(1.0, gigabytes)).messages();
  temper::Bench(mpi, gigabytes).reading();
}

// What carries tensors between ranks with a GPU each, under mpirun: a message each way between neighbours, an
// exchange of all with all, sums in rank order beside NCCL's own reduce-scatter. GB/s of a GPU are the bytes
// that it sends to others (of which it gets as many), and count an exchange of (n - 1) / n of the data for
// either kind of sum.

#include <nccl.h>

#include <chrono>
#include <cstdio>

#include "src/comm/collectives.h"
#include "src/comm/gpu/nccl_transport.h"
#include "src/core/cuda.h"
#include "src/ops/backend.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/support/normal_block.h"

namespace temper {
namespace {

constexpr int kWarm = 3, kMeasured = 10;
constexpr int64_t kStep = int64_t{64} << 10, kSmall = int64_t{16} << 20, kLayer = int64_t{128} << 20,
                  kLarge = int64_t{512} << 20;  // bytes: of a decode step, a small layer, 8B's, a unit

struct Bench {
  Ctx& c;
  Comm& all;
  int rank, size;

  /// The time of one call, the slowest rank's.
  template <class Call>
  double seconds(Call&& call) {
    for (int i = 0; i < kWarm; ++i) call();
    c.lane.wait();
    all.barrier("bench: before the calls");
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kMeasured; ++i) call();
    c.lane.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return all.all_reduce_max(took.count() / kMeasured, "bench: slowest");
  }
  void report(const char* what, int64_t data, int64_t sent, double took) const {
    if (rank == 0)
      std::printf("| %s, %ld KiB, %d GPUs | %.1f us | %.1f GB/s |\n", what, data >> 10, size, took * 1e6,
                  static_cast<double>(sent) / took * 1e-9);
  }
};

/// NCCL's own sum, whose order of additions is its own.
class Peer {
 public:
  explicit Peer(Bench& b) {
    const std::string id(b.rank == 0 ? make_nccl_id().data() : "", b.rank == 0 ? sizeof(NcclId) : 0);
    const std::string bytes = b.all.broadcast(id, 0, "bench: id of the peer's communicator");
    ncclUniqueId unique;
    std::memcpy(&unique, bytes.data(), sizeof unique);
    CHECK(ncclCommInitRank(&comm_, b.size, unique, b.rank) == ncclSuccess, "NCCL's communicator");
  }
  ~Peer() { ncclCommDestroy(comm_); }
  void reduce_scatter(Bench& b, const Tensor& flat) {
    float* const from = flat.as<float>();
    const auto own = static_cast<size_t>(flat.size() / b.size);
    CHECK(ncclReduceScatter(from, from + static_cast<size_t>(b.rank) * own, own, ncclFloat32, ncclSum, comm_,
                            stream_of(b.c.lane)) == ncclSuccess,
          "ncclReduceScatter");
  }

 private:
  ncclComm_t comm_ = nullptr;
};

/// What it takes of a GPU to join and, with the first exchange, to connect: src/run/plan/memory/memory.h counts it.
/// Twice, since the first one loads the library's kernels, too.
void report_memory(const MpiSession& mpi, Ctx& c) {
  std::vector<std::unique_ptr<Collectives>> made;
  const auto free_mib = [&] {
    c.lane.wait();
    return device::gpu_memory().free >> 20;
  };
  const ArenaScope scope(c.scratch);
  const Tensor x = c.scratch.make({kSmall}, DType::f32);
  for (const char* which : {"first", "second"}) {
    const int64_t before = free_mib();
    made.push_back(mpi.make_collectives(0, mpi.rank(), Device::cuda, which, 600));
    const int64_t joined = free_mib();
    made.back()->all_gather_shards(c, x, "bench: all with all");
    if (mpi.rank() == 0)
      std::printf("| memory of the %s communicator of %d ranks | joined %ld MiB | connected %ld MiB more |\n",
                  which, mpi.size(), before - joined, joined - free_mib());
  }
}

/// Many gathers run in a row and recorded, as those of the layers of a decode step.
void report_graph(Bench& b, Collectives& ranks, int64_t bytes) {
  constexpr int kGathers = 100;
  const ArenaScope scope(b.c.scratch);
  const Tensor mine = b.c.scratch.make({bytes / 4}, DType::f32),
               all = b.c.scratch.make({b.size, bytes / 4}, DType::f32);
  const auto gathers = [&] {
    for (int i = 0; i < kGathers; ++i) ranks.all_gather(b.c, all, mine, "bench: recorded");
  };
  gathers();
  b.c.lane.wait();
  device::Graph graph;
  graph.record(b.c.lane, gathers);
  b.report("gather in a graph", bytes, bytes * (b.size - 1),
           b.seconds([&] { graph.replay(b.c.lane); }) / kGathers);
}

void bench(const MpiSession& mpi) {
  Backend gpu(Device::cuda);
  report_memory(mpi, gpu.ctx());
  const std::unique_ptr<Comm> all = mpi.make_comm_of_all(600);
  const std::unique_ptr<Collectives> ranks = mpi.make_collectives(0, mpi.rank(), Device::cuda, "bench", 600);
  Bench b{gpu.ctx(), *all, mpi.rank(), mpi.size()};
  if (b.rank == 0) std::printf("Tensors go %s.\n", ranks->carrier());
  Peer peer(b);
  for (const int64_t bytes : {kStep / 8, kStep, 2 * kStep, 4 * kStep, 16 * kStep})
    report_graph(b, *ranks, bytes);
  for (const int64_t bytes : {kStep, int64_t{1} << 20, int64_t{4} << 20, kSmall, kLayer, kLarge}) {
    ArenaScope scope(b.c.scratch);
    const Tensor x = b.c.scratch.make({bytes / 4}, DType::f32), y = b.c.scratch.like(x);
    NormalBlock().fill(b.c.device, x, 1, 0, static_cast<uint64_t>(b.rank));
    if (const int other = b.rank ^ 1; b.size % 2 == 0)
      b.report("a message each way", bytes, bytes,
               b.seconds([&] { ranks->send_recv(b.c, x, other, y, other, "bench: message"); }));
    const int64_t sent = bytes / b.size * (b.size - 1);
    b.report("gather of shards", bytes, sent,
             b.seconds([&] { ranks->all_gather_shards(b.c, x, "bench: gather"); }));
    const double own = b.seconds([&] { ranks->reduce_scatter_sum(b.c, x, "bench: sum"); }),
                 theirs = b.seconds([&] { peer.reduce_scatter(b, x); });
    b.report("sum in rank order, fp32", bytes, sent, own);
    b.report("NCCL's reduce-scatter, fp32", bytes, sent, theirs);
    if (b.rank == 0) std::printf("| of it | %.0f %% | |\n", 100 * theirs / own);
    const Tensor pieces = ranks->make_pieces(b.c, x.size(), x.dtype);
    b.report("sum by pieces, as beside other work", bytes, sent,
             b.seconds([&] { ranks->reduce_scatter_sum(b.c, x, "bench: sum by pieces", pieces); }));
  }
}

}  // namespace
}  // namespace temper

int main() {
  if (!temper::select_gpu_of_rank()) return 1;
  const temper::MpiSession mpi(nullptr, nullptr);
  temper::bench(mpi);
}

// A large message between two ranks, as weights travel from host to host: GB/s from posting it to its last
// byte in the receiver's memory. usage: mpirun -n 2 mailbox_bench [MB]

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "src/comm/mpi_comm.h"
#include "src/core/stopwatch.h"

namespace temper {
namespace {

constexpr int kChannel = 0, kRounds = 5;

void bench(const MpiSession& mpi, size_t bytes) {
  const std::unique_ptr<Mailbox> mailbox = mpi.make_mailbox(600);
  const std::unique_ptr<Comm> all = mpi.make_comm_of_all(600);
  const auto message = std::make_shared<const std::string>(mpi.rank() == 0 ? bytes : 0, 'm');
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    all->barrier("bench: before");
    const Stopwatch waited;
    if (mpi.rank() == 0) {
      mailbox->post_shared(1, kChannel, message);
      while (mailbox->outgoing_bytes(kChannel) > 0) mailbox->pause(waited.seconds(), "bench: sent");
    } else {
      std::optional<Message> got;
      while (!(got = mailbox->poll(kChannel))) mailbox->pause(waited.seconds(), "bench: received");
      mailbox->reuse(std::move(got->bytes));
    }
    best = std::min(best, all->all_reduce_max(waited.seconds(), "bench: slower rank"));
  }
  if (mpi.rank() == 0)
    std::printf("| a message of %zu MB | %.3f s | %.2f GB/s |\n", bytes / 1000000, best,
                1e-9 * static_cast<double>(bytes) / best);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const temper::MpiSession mpi(&argc, &argv);
  if (mpi.size() != 2) {
    std::fprintf(stderr, "usage: mpirun -n 2 %s [MB]\n", argv[0]);
    return 64;
  }
  temper::bench(mpi, (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 500) * 1000000);
}

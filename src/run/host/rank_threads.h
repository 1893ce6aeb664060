#pragma once
// How many threads a rank computes with. What was asked for comes first: the key run.threads or the option
// --threads, then OMP_NUM_THREADS. Else the ranks of a host divide what the system lets them have:
//   share of a core   = 1 / ranks whose affinity mask has it
//   share of a quota  = processors of the control group / ranks in it
//   threads           = max(1, floor(min(sum of the shares of the own mask's cores, shares of the own
//   quotas)))
// Ranks with equal masks so divide them evenly, ranks with masks of their own have all of them, and where
// masks overlap in part only the common cores are divided. Ranks without roles take no part.

#include <optional>
#include <span>
#include <string>

#include "src/comm/comm.h"
#include "src/core/process/cpus.h"

namespace temper {

struct RankThreads {
  int number = 1;
  std::string why;  // for people
};

/// The threads of the rank whose Cpus are `ranks[mine]`, among those of its host.
RankThreads divide_cpus(std::span<const Cpus> ranks, size_t mine);

/// The threads of this process alone.
RankThreads process_threads();

/// Every rank of `host`, the ranks of this host, calls it. `asked`: threads that the config or the command
/// line wants. Error(Exit::environment) where OMP_NUM_THREADS is no number of threads.
RankThreads rank_threads(Comm& host, std::optional<int64_t> asked, bool computes = true);

/// "2 threads each (why)", as all ranks of the world that compute have them; every rank of it calls this.
std::string describe_threads(Comm& world, const RankThreads& mine, bool computes);

}  // namespace temper

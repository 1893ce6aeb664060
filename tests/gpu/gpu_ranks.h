#pragma once
// Several ranks with a GPU each. Where there are fewer GPUs, ranks share them and say by NCCL_HOSTID that
// they are on hosts of so many GPUs, between which NCCL goes over sockets; a test of several hosts says how
// many ranks each has, so that a machine of many GPUs does not make it one of a single host. Exchanges take
// milliseconds so: for bits and for ends of jobs, not for speed.

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "src/core/device.h"
#include "tests/support/ranks.h"

namespace temper {

/// What a process on a shared GPU has to say to NCCL, by name.
inline constexpr std::pair<const char*, const char*> kAloneOnItsHost[] = {{"NCCL_SOCKET_IFNAME", "lo"},
                                                                          {"NCCL_MNNVL_ENABLE", "0"}};

inline constexpr int kAllOnOneHost = std::numeric_limits<int>::max();

/// Before MPI and NCCL start. A host has at most `per_host` ranks, and no more than there are GPUs. False:
/// there is no GPU.
inline bool select_gpu_of_rank(int per_host = kAllOnOneHost) {
  const std::vector<int> gpus = device::find_gpus().gpus;
  if (gpus.empty()) return false;
  const auto number = [](const char* name, int without) {
    const char* const value = std::getenv(name);
    return value != nullptr ? std::atoi(value) : without;
  };
  const int own = number("OMPI_COMM_WORLD_RANK", 0), count = static_cast<int>(gpus.size());
  const int of_host = std::min(count, per_host);
  if (of_host < number("OMPI_COMM_WORLD_SIZE", 1)) {
    ::setenv("NCCL_HOSTID", fmt::format("host-{}", own / of_host).c_str(), 1);
    for (const auto& [name, value] : kAloneOnItsHost) ::setenv(name, value, 1);
  }
  device::select_gpu(gpus[static_cast<size_t>(own % count)]);
  return true;
}

/// The same where there are as many; otherwise the first one is everybody's, and tensors go by way of host
/// memory.
inline bool select_own_gpu_or_first() {
  const std::vector<int> gpus = device::find_gpus().gpus;
  const char* const ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (ranks != nullptr && std::ssize(gpus) >= std::atoi(ranks)) return select_gpu_of_rank();
  if (!gpus.empty()) device::select_gpu(gpus.front());
  return !gpus.empty();
}

/// What then carries tensors between all ranks.
inline const char* carrier_of_all(int per_host = kAllOnOneHost) {
  const int of_host = std::min(static_cast<int>(device::find_gpus().gpus.size()), per_host);
  return of_host >= test_world->size() ? "peer memory" : of_host > 1 ? "peer memory and NCCL" : "NCCL";
}

/// The main of <name>_mpiN_test.cpp.
inline int run_tests_on_gpus(int argc, char** argv, int num_ranks, int per_host = kAllOnOneHost) {
  return select_gpu_of_rank(per_host) ? run_tests_on_ranks(argc, argv, num_ranks) : 1;
}

}  // namespace temper

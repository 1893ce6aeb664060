#pragma once
// NCCL carries parcels from GPU to GPU, for ranks with a GPU each: by NVLink or PCIe within a host, by the
// network between hosts. The library is opened at run time, so that the program starts where it is missing.

#include <array>
#include <memory>
#include <string>

#include "src/comm/transport.h"

namespace temper {

/// libnccl.so.2 is here, and this program was built with CUDA.
bool nccl_is_here();
/// "2.28.9", "none found" or "not built in". Never fails.
std::string nccl_version();

/// What the ranks of one transport find each other by.
using NcclId = std::array<char, 128>;
/// On one of them, which tells the others.
NcclId make_nccl_id();

/// On the selected GPU; every one of the `size` ranks calls it. Exchanges are queued on the lane, the host
/// does not wait for them: a rank that never comes is found by comm/watch/watch.h, which ends the process. What
/// the host itself waits for (ranks that join, connections at a first exchange) is Exit::hang beyond the
/// limit; Exit::retry where NCCL reports an error, with its words. `axis` is for reports.
std::unique_ptr<Transport> make_nccl_transport(const NcclId& id, int rank, int size, const std::string& axis,
                                               double limit_seconds);

}  // namespace temper

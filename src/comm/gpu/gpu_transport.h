#pragma once
// What carries parcels between ranks with a GPU each: memory that they open to each other within a host
// (comm/gpu/peer_transport.h), NCCL between those that do not reach each other so.

#include <memory>

#include "src/comm/comm.h"
#include "src/comm/transport.h"

namespace temper {

/// The transport between the selected GPUs; all ranks of `all` call it. Null, on all of them, where some
/// share a GPU or NCCL is missed. Two variables of NCCL hold here, too: NCCL_P2P_DISABLE=1, no GPU opens its
/// memory; NCCL_HOSTID names the host that a rank is taken to be on. `axis`, `limit_seconds`: as for NCCL
/// (comm/gpu/nccl_transport.h).
std::unique_ptr<Transport> make_gpu_transport(Comm& all, const std::string& axis, double limit_seconds);

}  // namespace temper

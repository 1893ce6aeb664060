#pragma once
// Parcels between GPUs of one host that write into each other's memory (comm/gpu/neighbours.h). Large ones go
// by the copy engines, which take no multiprocessor from what computes beside (kernels that carry bytes wait
// for one, and hold it): piece by piece into the inbox of the receiver, which copies each to where it
// belongs, or adds it up where it lies. Small ones, and all in a graph, go by a kernel of few blocks
// (ops/peers/peer_exchange.h). Nothing here waits on the host.

#include <memory>

#include "src/comm/gpu/neighbours.h"
#include "src/comm/transport.h"

namespace temper {

/// What ranks that do not reach each other exchange goes by `others`, which may be null where all do. `axis`
/// is for reports.
std::unique_ptr<Transport> make_peer_transport(std::unique_ptr<Neighbours> neighbours,
                                               std::unique_ptr<Transport> others, int rank, int size,
                                               const std::string& axis);

}  // namespace temper

#include "src/comm/gpu/gpu_transport.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "src/comm/gpu/nccl_transport.h"
#include "src/comm/gpu/neighbours.h"
#include "src/comm/gpu/peer_transport.h"
#include "src/core/device.h"

namespace temper {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// A GPU of another host, as NCCL_HOSTID names it, is another one: so NCCL carries tensors between ranks that
/// share a GPU, over sockets, in tests.
bool has_own_gpu_each(Comm& all) {
  const std::vector<std::string> of =
      all.all_gather(device::gpu_uuid() + variable("NCCL_HOSTID"), "GPUs of the ranks, copied");
  return std::ssize(std::set(of.begin(), of.end())) == all.size();
}

std::unique_ptr<Transport> join_nccl(Comm& all, const std::string& axis, double limit_seconds) {
  const NcclId made = all.rank() == 0 ? make_nccl_id() : NcclId{};
  const std::string bytes = all.broadcast({made.begin(), made.end()}, 0, "NCCL's id, copied from rank 0");
  NcclId id;
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return make_nccl_transport(id, all.rank(), all.size(), axis, limit_seconds);
}

}  // namespace

std::unique_ptr<Transport> make_gpu_transport(Comm& all, const std::string& axis, double limit_seconds) {
  if (all.size() == 1 || !has_own_gpu_each(all)) return nullptr;
  const bool opens = variable("NCCL_P2P_DISABLE") != "1";
  std::unique_ptr<Neighbours> neighbours =
      Neighbours::meet(all, opens ? device::host_id() + variable("NCCL_HOSTID") : "");
  std::unique_ptr<Transport> nccl;
  if (!neighbours || !neighbours->all()) {
    if (all.all_reduce_max(nccl_is_here() ? 0 : 1, "whether NCCL is missed, largest") > 0) {
      if (neighbours) (void)neighbours->part();
      return nullptr;
    }
    nccl = join_nccl(all, axis, limit_seconds);
  }
  if (!neighbours) return nccl;
  return make_peer_transport(std::move(neighbours), std::move(nccl), all.rank(), all.size(), axis);
}

}  // namespace temper

#include "src/run/session/run_links.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/run/host/gpu.h"

namespace temper {
namespace {

std::vector<int> all_ranks(const MpiSession& mpi) {
  std::vector<int> all(static_cast<size_t>(mpi.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// A rank without roles waits for the whole run.
double wait_limit(const RunTask& task, const Placement& placement) {
  return placement.roles.empty() ? std::numeric_limits<double>::infinity() : task.wait_limit();
}

/// The trainer's ranks first: the first of them writes what is one rank's to write.
std::unique_ptr<Comm> make_keepers(const MpiSession& mpi, const RoleRanks& ranks, double wait_limit) {
  const int rank = mpi.rank();
  if (ranks.keepers == ranks.trainer) return nullptr;
  const bool keeps = std::binary_search(ranks.keepers.begin(), ranks.keepers.end(), rank);
  return mpi.make_comm(keeps ? 0 : -1, ranks.trains(rank) ? rank : mpi.size() + rank, wait_limit);
}

}  // namespace

RunLinks::RunLinks(const RunTask& task, const MpiSession& mpi, const Placement& placement,
                   std::function<std::string()> why_stop)
    : world(mpi.make_comm_of_all(wait_limit(task, placement))),
      device(take_device(mpi, task.plan.device, *world, !placement.roles.empty(),
                         task.config().cluster.shared_gpus == "allow")),
      meshes(mpi, task.plan, device, task.wait_limit()),
      trainers(task.plan.trains(mpi.rank()) ? &meshes.trainer().control(AxisSet::all()) : nullptr),
      other_keepers(make_keepers(mpi, placement.ranks, task.wait_limit())),
      keepers(other_keepers ? other_keepers.get() : trainers),
      mailbox(mpi.make_mailbox(task.wait_limit())),
      end(*mailbox, placement.ranks, all_ranks(mpi), std::move(why_stop)),
      groups(*mailbox, placement.ranks, task.plan.max_policy_lag, end),
      weights(*mailbox, weight_routes(task, placement.ranks), task.lag(), end) {
  if (device == Device::cuda && task.config().cluster.shared_gpus == "error")
    require_free_memory(task.plan, mpi.rank());
}

bool RunLinks::wait_for_end() {
  while (!end.look()) mailbox->pause(0, "end of the run");
  return end.after().has_value();
}

}  // namespace temper

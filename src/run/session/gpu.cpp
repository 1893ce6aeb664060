#include "src/run/session/gpu.h"

#include <spdlog/spdlog.h>

#include <map>

#include "src/run/plan/plan.h"

namespace temper {

namespace {

void check_sharing(Comm& comm, bool uses, bool allowed) {
  std::map<std::string, std::vector<int>> users;
  int rank = 0;
  for (const std::string& uuid :
       comm.all_gather(uses ? device::gpu_uuid() : "", "GPUs of all ranks, copied")) {
    if (!uuid.empty()) users[uuid].push_back(rank);
    ++rank;
  }
  for (const auto& [uuid, ranks] : users)
    if (ranks.size() > 1 && !allowed)
      fail(
          Exit::usage,
          {.what = "several ranks use one GPU",
           .where = "cluster.shared_gpus = \"error\"",
           .why = fmt::format("ranks {} and {} of {} are on GPU {}", ranks[0], ranks[1], comm.size(), uuid),
           .fix = "start as many ranks on a node as it has GPUs, or set cluster.shared_gpus = \"allow\" (for "
                  "tests: tensors go between such ranks through host memory)"});
}

}  // namespace

Device resolve_device(const std::string& device, const std::string& where, Comm& comm) {
  if (device == "cpu") return Device::cpu;
  const device::Found found = device::find_gpus();
  const bool missing =
      comm.all_reduce_max(found.gpus.empty() ? 1.0 : 0.0, "a rank without a GPU, max over ranks") > 0;
  if (!missing) return Device::cuda;
  if (device == "auto") {
    spdlog::debug("no GPU: {}", found.why);
    return Device::cpu;
  }
  fail(Exit::environment,
       {.what = "no GPU can be used",
        .where = where,
        .why = found.gpus.empty() ? found.why : "another rank finds none",
        .fix = "use cpu or auto, or start on machines with an H100 or H200 and its driver"});
}

void select_gpu(const MpiSession& mpi) {
  const std::vector<int> gpus = device::find_gpus().gpus;
  const auto turn = static_cast<size_t>(mpi.rank() % mpi.ranks_on_node());
  const int index = gpus.at(turn % gpus.size());
  device::select_gpu(index);
  spdlog::debug("GPU {} of {}: {}", index, gpus.size(), device::gpu_name());
}

void settle_device(LoadedConfig& loaded, Comm& comm) {
  std::string& device = loaded.config.run.device;
  const bool automatic = device == "auto";
  device = device_name(resolve_device(device, "run.device = \"" + device + "\"", comm));
  if (automatic) loaded.origins["run.device"] = "auto, on this machine";
}

Device take_device(const MpiSession& mpi, Device device, Comm& comm, bool computes, bool shared) {
  if (device == Device::cpu) return Device::cpu;
  if (computes) select_gpu(mpi);
  check_sharing(comm, computes, shared);
  return computes ? Device::cuda : Device::cpu;
}

}  // namespace temper

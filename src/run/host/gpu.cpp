#include "src/run/host/gpu.h"

#include <algorithm>
#include <map>

#include "src/core/log.h"
#include "src/run/plan/memory/memory.h"

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
    log::debug("no GPU: {}", found.why);
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
  log::debug("GPU {} of {}: {}", index, gpus.size(), device::gpu_name());
}

Device resolve_device(LoadedConfig& loaded, Comm& comm) {
  std::string& device = loaded.config.run.device;
  const bool automatic = device == "auto";
  const Device found = resolve_device(device, "run.device = \"" + device + "\"", comm);
  device = device_name(found);
  if (automatic) loaded.origins["run.device"] = "auto, on this machine";
  return found;
}

Device take_device(const MpiSession& mpi, Device device, Comm& comm, bool computes, bool shared) {
  if (device == Device::cpu) return Device::cpu;
  if (computes) select_gpu(mpi);
  check_sharing(comm, computes, shared);
  return computes ? Device::cuda : Device::cpu;
}

int64_t gpu_bytes_per_rank(const MpiSession& mpi, Device device, Comm& comm) {
  if (device != Device::cuda) return 0;
  const std::vector<int> gpus = device::find_gpus().gpus;
  int64_t least = device::gpu_total_bytes(gpus.front());
  for (const int gpu : gpus) least = std::min(least, device::gpu_total_bytes(gpu));
  const auto ranks =
      static_cast<int64_t>((static_cast<size_t>(mpi.ranks_on_node()) + gpus.size() - 1) / gpus.size());
  const double mine = static_cast<double>(least / ranks);
  return static_cast<int64_t>(-comm.all_reduce_max(-mine, "memory of a GPU, min over ranks"));
}

void resolve_sizes(LoadedConfig& loaded, const RunPlan& plan, int64_t gpu_bytes) {
  if (gpu_bytes == 0) return;
  const std::string origin = fmt::format("auto, for {} bytes of GPU memory a rank", gpu_bytes);
  Config& config = loaded.config;
  if (!config.train.max_tokens_per_microbatch) {
    config.train.max_tokens_per_microbatch = plan.max_tokens_per_microbatch;
    loaded.origins["train.max_tokens_per_microbatch"] = origin;
  }
  const auto keep = [&](std::optional<bool>& value, bool found, const std::string& key) {
    if (!value) loaded.origins[key] = origin;
    value = value.value_or(found);
  };
  keep(config.train.offload_optimizer, plan.optimizer_in_host, "train.offload.optimizer");
  for (const RoleTraits& row : plan.rows)
    if (row.keys.has(RoleKey::offload))
      keep(config.roles.of(row.name).offload, plan.role(row.name) && plan.role(row.name)->in_host,
           fmt::format("roles.{}.offload", row.name));
  if (!config.rollout.kv_memory_bytes && plan.cache.pages > 0) {
    config.rollout.kv_memory_bytes = plan.cache.pages * plan.cache.page_bytes;
    loaded.origins["rollout.kv_memory"] = origin;
  }
}

void require_free_memory(const RunPlan& plan, int rank) {
  const int64_t taken = kGpuContext + exchange_memory(plan, rank).joined;  // before it comes here
  int64_t needed = 0;
  for (const MemoryRow& row : plan.memory)
    if (std::binary_search(row.ranks.begin(), row.ranks.end(), rank))
      needed = std::max(needed, row.device_bytes - taken);
  const device::GpuMemory memory = device::gpu_memory();
  if (memory.free >= needed) return;
  fail(Exit::environment,
       {.what = "too little memory of the GPU is free",
        .where = fmt::format("rank {}, {}", rank, device::gpu_name()),
        .why = fmt::format("the plan needs {} bytes, {} of {} are free", needed, memory.free, memory.total),
        .fix = "end what else uses this GPU (`nvidia-smi` shows it), or lower "
               "train.max_tokens_per_microbatch and rollout.kv_memory"});
}

}  // namespace temper

#include "src/run/host/rank_threads.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "src/core/check.h"
#include "src/core/json.h"
#include "src/core/text/short_number.h"

namespace temper {
namespace {

constexpr int64_t kMostThreads = 4096;  // as of run.threads

/// The first number of "4" or "4,2": the rest is for loops within loops.
std::optional<int> from_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (!text || !*text) return std::nullopt;
  char* end = nullptr;
  const int64_t number = std::strtoll(text, &end, 10);
  if (number < 1 || number > kMostThreads || (*end != '\0' && *end != ','))
    fail(Exit::environment, {.what = "OMP_NUM_THREADS is no number of threads",
                             .where = "environment",
                             .why = fmt::format("it is \"{}\"", text),
                             .fix = fmt::format("set it to 1 to {}, or unset it", kMostThreads)});
  return static_cast<int>(number);
}

std::string to_text(const Cpus& cpus) {
  Json quotas = Json::array();
  for (const CpuQuota& quota : cpus.quotas) quotas.push_back(Json::array({quota.group, quota.cores}));
  return Json{{"cores", cpus.cores}, {"quotas", quotas}}.dump();
}

Cpus from_text(const std::string& text) {
  const Json json = Json::parse(text);
  Cpus cpus{json["cores"].get<std::vector<int>>(), {}};
  for (const Json& quota : json["quotas"])
    cpus.quotas.push_back({quota[0].get<uint64_t>(), quota[1].get<double>()});
  return cpus;
}

bool has_group(const Cpus& cpus, uint64_t group) {
  return std::any_of(cpus.quotas.begin(), cpus.quotas.end(),
                     [&](const CpuQuota& quota) { return quota.group == group; });
}

/// The sum of shares of the mask's cores, and what it comes from.
double share_of_cores(std::span<const Cpus> ranks, size_t mine, std::string& why) {
  double share = 0;
  int64_t fewest = std::ssize(ranks), most = 1;
  for (const int core : ranks[mine].cores) {
    const int64_t users = std::count_if(ranks.begin(), ranks.end(), [&](const Cpus& cpus) {
      return std::binary_search(cpus.cores.begin(), cpus.cores.end(), core);
    });
    share += 1.0 / static_cast<double>(users);
    fewest = std::min(fewest, users), most = std::max(most, users);
  }
  const int own = static_cast<int>(ranks[mine].cores.size()), online = cores_online();
  why = own < online ? fmt::format("{} of {} cores by the affinity mask", own, online)
                     : count_text(own, "core");
  if (most > 1)
    why += fewest == most ? fmt::format(", {} ranks share them", most) : ", some shared with other ranks";
  return share;
}

/// The least share of a quota; infinite without one.
double share_of_quotas(std::span<const Cpus> ranks, size_t mine, std::string& why) {
  double least = std::numeric_limits<double>::infinity();
  for (const CpuQuota& quota : ranks[mine].quotas) {
    const int64_t users = std::count_if(ranks.begin(), ranks.end(),
                                        [&](const Cpus& cpus) { return has_group(cpus, quota.group); });
    const double share = quota.cores / static_cast<double>(users);
    if (share >= least) continue;
    least = share;
    why = fmt::format("a CPU quota of {:.4g} cores", quota.cores);
    if (users > 1) why += fmt::format(", {} ranks share it", users);
  }
  return least;
}

}  // namespace

RankThreads divide_cpus(std::span<const Cpus> ranks, size_t mine) {
  constexpr double kRounding = 1e-6;  // three thirds are one
  std::string of_cores, of_quota;
  const double cores = share_of_cores(ranks, mine, of_cores);
  const double quota = share_of_quotas(ranks, mine, of_quota);
  const double share = std::clamp(std::min(cores, quota) + kRounding, 1.0, static_cast<double>(kMostThreads));
  return {static_cast<int>(share), quota < cores ? of_quota : of_cores};
}

RankThreads process_threads() {
  if (const std::optional<int> number = from_environment()) return {*number, "OMP_NUM_THREADS"};
  return divide_cpus(std::vector{cpus_of_process()}, 0);
}

RankThreads rank_threads(Comm& host, std::optional<int64_t> asked, bool computes) {
  std::vector<Cpus> ranks;
  for (const std::string& text : host.all_gather(to_text(computes ? cpus_of_process() : Cpus{}),
                                                 "cores of the ranks of a host, copied"))
    ranks.push_back(from_text(text));
  if (asked) return {static_cast<int>(*asked), "as asked for"};
  if (const std::optional<int> number = from_environment()) return {*number, "OMP_NUM_THREADS"};
  return divide_cpus(ranks, static_cast<size_t>(host.rank()));
}

std::string describe_threads(Comm& world, const RankThreads& mine, bool computes) {
  const double number = mine.number, none = std::numeric_limits<double>::infinity();
  const double most = world.all_reduce_max(computes ? number : -none, "threads of ranks, maximum");
  const double fewest = -world.all_reduce_max(computes ? -number : -none, "threads of ranks, minimum");
  return fewest == most
             ? fmt::format("{} each ({})", count_text(mine.number, "thread"), mine.why)
             : fmt::format("{} to {} threads each (this rank {}: {})", fewest, most, mine.number, mine.why);
}

}  // namespace temper

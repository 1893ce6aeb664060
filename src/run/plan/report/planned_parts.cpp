#include "src/run/plan/report/planned_parts.h"

#include <algorithm>
#include <tuple>

#include "src/core/check.h"
#include "src/run/plan/report/sizes.h"

namespace temper {
namespace {

std::string list_text(const char* memory, const MemoryParts& parts, int64_t sum) {
  if (parts.empty()) return "";
  std::string text = fmt::format("\n    {:<20}{:>12}", std::string(memory) + " memory", size_text(sum));
  for (const auto& [name, bytes] : parts) text += fmt::format("\n      {:<18}{:>12}", name, size_text(bytes));
  return text;
}

}  // namespace

std::string planned_parts(const RunPlan& plan, int rank, std::string_view phase) {
  const MemoryRow* found = nullptr;
  for (const MemoryRow& row : plan.memory) {
    if (!std::binary_search(row.ranks.begin(), row.ranks.end(), rank)) continue;
    const auto larger = [](const MemoryRow& a, const MemoryRow& b) {
      return std::tie(a.device_bytes, a.host_bytes) > std::tie(b.device_bytes, b.host_bytes);
    };
    const bool named = row.phase == phase, has_named = found && found->phase == phase;
    if (!found || (named && !has_named) || (named == has_named && larger(row, *found))) found = &row;
  }
  if (!found) return "nothing was planned for this rank";
  return fmt::format("planned for rank {} in {}{}:", rank, found->phase == phase ? "" : "its largest phase, ",
                     found->phase) +
         list_text("GPU", found->device, found->device_bytes) +
         list_text("host", found->host, found->host_bytes);
}

}  // namespace temper

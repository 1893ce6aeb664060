#include "src/run/record/memory_ledger.h"

namespace temper {

int64_t MemoryLedger::held_bytes(Device device) const {
  int64_t bytes = 0;
  for (const Owner& owner : owners_)
    if (owner.device == device) bytes += owner.held();
  return bytes;
}

std::map<std::string, double> MemoryLedger::metrics(const std::string& phase, int64_t more) const {
  constexpr double kGiB = 1073741824.0;
  const std::string name = "perf/peak_gb/" + phase;
  return {{name + "/host", static_cast<double>(held_bytes(Device::cpu) + more) / kGiB},
          {name + "/device", static_cast<double>(held_bytes(Device::cuda)) / kGiB}};
}

}  // namespace temper

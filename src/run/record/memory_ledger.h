#pragma once
// What this rank holds, by who holds it: asked of the owners when a phase ends, for the metrics.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/core/device.h"

namespace temper {

class MemoryLedger {
 public:
  using HeldBytes = std::function<int64_t()>;

  /// `process`: of the program itself and what it keeps in the heap.
  explicit MemoryLedger(int64_t process) {
    add(Device::cpu, [process] { return process; });
  }
  /// The owner outlives all questions.
  void add(Device device, HeldBytes held) { owners_.push_back({device, std::move(held)}); }
  int64_t held_bytes(Device device) const;

  /// perf/peak_gb/<phase>/{host,device} of this rank, in GiB: what is held now, and `more` host bytes. Arenas
  /// hold all that a phase used until they are trimmed after it.
  std::map<std::string, double> metrics(const std::string& phase, int64_t more = 0) const;

 private:
  struct Owner {
    Device device;
    HeldBytes held;
  };
  std::vector<Owner> owners_;
};

}  // namespace temper

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

  /// The process counts as it is now: the program and its data, before models and arenas.
  MemoryLedger();
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

/// Memory of this process that is in use, as Linux counts it.
int64_t resident_bytes();

}  // namespace temper

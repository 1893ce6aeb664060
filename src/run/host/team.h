#pragma once
// Ranks that have a role together, as they share its model, or its tokens: the first one speaks for them with
// the rest of the run, the others do the same work beside it. What depends on anything but config, weights
// and data is its word.

#include <map>
#include <string>

#include "src/comm/comm.h"

namespace temper {

class Team {
 public:
  /// One rank alone.
  Team() = default;
  explicit Team(Comm& ranks) : ranks_(&ranks) {}

  bool alone() const { return !ranks_; }
  bool leads() const { return !ranks_ || ranks_->rank() == 0; }
  /// The leader's answer, on all; each of them asks.
  template <class Ask>
  bool agree(Ask&& ask, const char* what) const {
    const bool mine = ask();
    return ranks_ ? ranks_->broadcast(mine ? "1" : "0", 0, what) == "1" : mine;
  }
  /// The leader's bytes, on all: make() runs on the leader alone.
  template <class Make>
  std::string from_leader(Make&& make, const char* what) const {
    if (!ranks_) return make();
    return ranks_->broadcast(leads() ? make() : "", 0, what);
  }

  /// The largest of the ranks' values, on all; each has the same names.
  std::map<std::string, double> largest(std::map<std::string, double> values, const char* what) const {
    if (ranks_)
      for (auto& [name, value] : values) value = ranks_->all_reduce_max(value, what);
    return values;
  }

 private:
  Comm* ranks_ = nullptr;
};

}  // namespace temper

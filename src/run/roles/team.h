#pragma once
// Tensor parallel neighbours that have a role together: the first one speaks for them with the rest of the
// run, the others do the same work beside it. What depends on anything but config, weights and data is its
// word.

#include <string>

#include "src/comm/comm.h"

namespace temper {

class Team {
 public:
  /// One rank alone.
  Team() = default;
  explicit Team(Comm& tp) : tp_(&tp) {}

  bool alone() const { return !tp_; }
  bool leads() const { return !tp_ || tp_->rank() == 0; }
  /// The leader's answer, on all; each of them asks.
  template <class Ask>
  bool agree(Ask&& ask, const char* what) const {
    const bool mine = ask();
    return tp_ ? tp_->broadcast(mine ? "1" : "0", 0, what) == "1" : mine;
  }
  /// The leader's bytes, on all: make() runs on the leader alone.
  template <class Make>
  std::string share(Make&& make, const char* what) const {
    if (!tp_) return make();
    return tp_->broadcast(leads() ? make() : "", 0, what);
  }

 private:
  Comm* tp_ = nullptr;
};

}  // namespace temper

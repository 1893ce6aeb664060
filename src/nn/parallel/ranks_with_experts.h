#pragma once
// Ranks that generate tokens of their own with the same blocks of experts (Splits::ep_spans_teams): every one
// of them makes each step that any of them makes, without rows where it has none (models/join_pass.h).

#include "src/comm/comm.h"

namespace temper {

class RanksWithExperts {
 public:
  /// Null: this rank alone has all that it needs.
  RanksWithExperts(Comm* ranks = nullptr) : ranks_(ranks) {}

  /// Is it so on one of them? Each asks.
  bool somewhere(bool here) const {
    return ranks_ ? ranks_->all_reduce_max(here ? 1.0 : 0.0, "who generates with the same experts") > 0 : here;
  }

 private:
  Comm* ranks_;
};

}  // namespace temper

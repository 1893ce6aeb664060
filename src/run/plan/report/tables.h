#pragma once
// The plan in tables, for those who want to know more than the screen of `temper check` says: each line of
// the batch arithmetic with its formula, who does what, what each phase holds.

#include "src/run/plan/plan.h"

namespace temper {

struct ReportOptions {
  int ranks_per_node = 0;      // 0: nodes are not shown
  int64_t memory_limit = 0;    // bytes per rank, 0: not given
  bool explain_batch = false;  // the batch, and the names that other trainers use
  bool memory = false;         // what each phase holds, and what other keys would change
  bool all = false;            // every table but that of other trainers' names
};

/// The tables that are asked for, of a plan whose memory is known.
std::string plan_tables(const PlanResult& result, const ReportOptions& options);

}  // namespace temper

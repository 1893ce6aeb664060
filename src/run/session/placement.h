#pragma once
// Which roles of a table a rank has, and who hands what to whom.

#include <optional>

#include "src/run/roles/role.h"

namespace temper {

struct PlacedRole {
  const RoleRow* row = nullptr;
  Portion portion;   // of this rank, or of its team, among those of the role
  size_t stage = 0;  // of the exchange, where it annotates
  /// It works ahead of the trainer, as some rank of its team produces. A rank that annotates and does not
  /// produce takes a step when the trainer needs it: it must not wait for groups ahead; but a team goes
  /// through the steps together. A role that learns never does.
  bool ahead = false;
  std::vector<int> ranks = {};  // all that have it

  bool learns() const { return row->state == State::learned; }
};

struct Placement {
  RoleRanks ranks;                // of the whole run
  std::vector<PlacedRole> roles;  // of this rank, in the order of their duties

  bool has(Duty duty) const;
  /// A role of this rank learns from whole steps beside the trainer.
  bool learns() const;
};

Placement place_roles(const RunTask& task, std::span<const RoleRow> rows, int rank);

/// The routes of weights from the trainer to ranks that generate.
WeightRoutes weight_routes(const RunTask& task, const RoleRanks& ranks);

}  // namespace temper

#pragma once
// Trajectories as bytes, to move groups between ranks of one job: little-endian, lengths before contents.
// Exact: every field comes back with the same bits. Reading checks every length against what is left, so a
// damaged message is Error(Exit::internal) and never a read outside it. Not a file format: no versioning.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/rl/types.h"

namespace temper {

void append_trajectory(std::string& bytes, const Trajectory& trajectory);
/// Reads one trajectory from the front of `bytes` and drops it from there.
Trajectory take_trajectory(std::string_view& bytes);

std::string groups_to_bytes(std::span<const Group> groups);
/// Everything in `bytes` must belong to the groups.
std::vector<Group> groups_from_bytes(std::string_view bytes);

}  // namespace temper

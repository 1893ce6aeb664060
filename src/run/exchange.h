#pragma once
// Moves groups and weight versions between roles. Groups travel in hops (sampled -> scored by the reference
// -> trained); a receiver gets all groups of its step, in order. Weights: version v is the state after step
// v; step s generates with exactly version s - 1. Roles on the same ranks share the buffers: publishing is a
// count, 0 bytes move. Buffers: one step per hop is in flight; `buffered_bytes` says what they hold.

#include <cstdint>
#include <map>
#include <vector>

#include "src/comm/comm.h"
#include "src/models/model.h"
#include "src/rl/types.h"

namespace temper {

enum class Hop { sampled, referenced };

class Exchange {
 public:
  /// `comm`: the ranks of the roles. `version`: finished steps at start.
  Exchange(Comm& comm, int64_t version) : comm_(&comm), version_(version) {}

  /// A finished group of this rank; Trajectory::group is its index in the step.
  void send(Hop hop, int64_t step, Group group);
  /// All groups of the step from all ranks, ascending; a group sent twice, or missing, is an internal error.
  std::vector<Group> receive(Hop hop, int64_t step);

  void publish_weights(const Model& model, int64_t version);
  /// The model must hold exactly this version.
  void receive_weights(const Model& model, int64_t version);
  int64_t version() const { return version_; }
  int64_t weight_bytes_moved() const { return weight_bytes_moved_; }
  int64_t buffered_bytes() const;

 private:
  using Key = std::pair<Hop, int64_t>;
  Comm* comm_;
  int64_t version_;
  const Model* published_ = nullptr;
  int64_t weight_bytes_moved_ = 0;
  std::map<Key, std::vector<Group>> outbox_;
};

}  // namespace temper

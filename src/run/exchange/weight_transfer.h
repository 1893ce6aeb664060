#pragma once
// Which trainer rank sends which rows of which tensor to a rank that generates, whatever the layouts of the
// two (nn/parallel/row_moves.h): made once. A message: version, digest of its rows (XXH3-128), the rows in
// plan order. A receiver that trains, too, copies what it has itself. Weights may be in the memory of any
// device; no lane has work on them during a call.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/nn/parallel/row_moves.h"

namespace temper {

struct WeightPiece {
  size_t parameter = 0;  // in the list of both stores
  RowMove move;
  int64_t bytes = 0;
};

/// To one receiver.
class WeightTransfer {
 public:
  /// `weights`: any store of the model, for shapes and type. `self`: the receiver among the sources; -1:
  /// none. What is not in host memory goes through `windows`, which outlive it.
  WeightTransfer(const ParameterStore& weights, const Holders& sources, const ShardPlace& receiver, int self,
                 device::HostWindows& windows);

  const std::vector<WeightPiece>& pieces() const { return pieces_; }
  /// Sources that send to the receiver.
  const std::vector<int>& senders() const { return senders_; }
  /// What source number `source` sends of its weights for this version.
  std::string message(const ParameterStore& weights, int source, int64_t version) const;
  /// The rows of a message of `source`: see(parameter, piece, its bytes in the message).
  using See = std::function<void(const Parameter&, const WeightPiece&, const char*)>;
  void look_into(const ParameterStore& weights, int source, std::string_view message, const See& see) const;
  /// Writes the rows of a message into the receiver's weights; Exit::internal when it is not of this version
  /// or size, Exit::storage unless what is in memory then has the digest that the source said.
  void apply(ParameterStore& weights, int source, int64_t version, std::string_view message) const;
  /// The receiver's weights get what its `trained` ones have of them.
  void copy_own(Lane& lane, ParameterStore& weights, const ParameterStore& trained) const;

 private:
  std::string digest_of(const ParameterStore& weights, int source, int64_t RowMove::*row) const;

  std::vector<WeightPiece> pieces_;
  std::vector<int> senders_;
  int self_;
  device::HostWindows& windows_;
};

}  // namespace temper

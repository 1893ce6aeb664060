#pragma once
// Which trainer rank sends which rows of which tensor to a rank that generates, whatever the layouts of the
// two (nn/parallel/row_moves.h): made once. A message: version, digest of its rows (ops/digest.h), and the
// rows in plan order, unless the receiver reads them out of the sender's memory. A receiver that trains, too,
// copies what it has itself. No lane has work on the weights during a call.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/ctx.h"
#include "src/nn/parallel/row_moves.h"

namespace temper {

struct WeightPiece {
  size_t parameter = 0;  // in the list of both stores
  RowMove move;
  int64_t bytes = 0;
};

/// Memory of a source that this process reads, and where each piece of the plan that it sends begins there.
struct WeightMemory {
  const char* base = nullptr;  // null: the rows come in the message
  std::vector<int64_t> at = {};
};

/// What one receiver gets.
class WeightTransfer {
 public:
  /// `weights`: any store of the model, for shapes and type. `self`: the receiver among the sources; -1:
  /// none. What is not in host memory goes through `windows`, which outlive it.
  WeightTransfer(const ParameterStore& weights, const Holders& sources, const ShardPlace& receiver, int self,
                 device::HostWindows& windows);

  const std::vector<WeightPiece>& pieces() const { return pieces_; }
  /// Sources that send to the receiver.
  const std::vector<int>& senders() const { return senders_; }
  bool sends(int source) const { return std::binary_search(senders_.begin(), senders_.end(), source); }
  /// Bytes of the rows that `source` sends, version and digest not counted.
  int64_t bytes_from(int source) const;
  /// What source number `source` sends of its weights for this version. In memory of `into`, where that has
  /// enough: new pages can cost more than the copy.
  std::string message(Ctx& c, const ParameterStore& weights, int source, int64_t version,
                      std::string into = {}) const;
  /// The same without the rows, and for once where they begin, in bytes from `weights.flat_values()` on.
  std::string notice(Ctx& c, const ParameterStore& weights, int source, int64_t version) const;
  std::vector<int64_t> places(const ParameterStore& weights, int source) const;
  static bool is_notice(std::string_view message);
  /// The rows that `source` sends, without more, to pinned memory `to` [bytes_from(source)]; there after the
  /// next wait of the lane.
  void copy_rows(Lane& lane, const ParameterStore& weights, int source, char* to) const;
  static const char* rows_in(std::string_view message);
  /// Such rows: see(parameter, piece, its bytes).
  using See = std::function<void(const Parameter&, const WeightPiece&, const char*)>;
  void look_into(const ParameterStore& weights, int source, const char* rows, const See& see) const;
  /// Writes the rows of a message, or of the memory that a notice is of, into the receiver's weights;
  /// Exit::internal when it is not of this version or size, Exit::storage unless what is in memory then has
  /// the digest that the source said.
  void apply(Ctx& c, ParameterStore& weights, int source, int64_t version, std::string_view message,
             const WeightMemory& memory = {}) const;
  /// The receiver's weights get what its `trained` ones have of them.
  void copy_own(Lane& lane, ParameterStore& weights, const ParameterStore& trained) const;

 private:
  // They give the digest of what is in the receiver's memory then.
  uint64_t take_rows(Ctx& c, ParameterStore& weights, int source, std::string_view message) const;
  uint64_t read_rows(Ctx& c, ParameterStore& weights, int source, const WeightMemory& memory) const;

  std::vector<WeightPiece> pieces_;
  std::vector<int> senders_;
  int self_;
  device::HostWindows& windows_;
};

}  // namespace temper

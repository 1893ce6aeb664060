#pragma once
// Which trainer rank sends which rows of which tensor to a rank that generates: made once, the same for every
// receiver. The sources share the rows of each tensor, so a version leaves over all of their links at once. A
// message: version, digest of the whole weights (XXH3-128 over the flat buffer), the rows in plan order.
// Weights may be in the memory of any device; no lane has work on them during a call.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/nn/parameter.h"

namespace temper {

/// Rows [begin, begin + rows) of a parameter (elements of a vector), sent by source number `source_index` (no
/// rank).
struct WeightPiece {
  int64_t parameter = 0;
  int64_t begin = 0, rows = 0;
  int64_t bytes = 0;
  int source_index = 0;
};

class WeightTransfer {
 public:
  WeightTransfer(const ParameterStore& weights, int num_sources);

  const std::vector<WeightPiece>& pieces() const { return pieces_; }
  /// What source number `source` sends for this version.
  std::string message(const ParameterStore& weights, int source, int64_t version);
  /// The rows that source number `source` sends: see(parameter, piece, its bytes in the message).
  using See = std::function<void(const Parameter&, const WeightPiece&, const char*)>;
  void look_into(const ParameterStore& weights, int source, std::string_view message, const See& see) const;
  /// Writes the rows of a message; Exit::internal when it is not of this version or size.
  void apply(ParameterStore& weights, int source, int64_t version, std::string_view message);
  /// After the messages of all sources: Exit::storage unless the weights have the digest that each of them
  /// said.
  void check_digest(const ParameterStore& weights);

 private:
  std::string digest_of(const ParameterStore& weights);

  std::vector<WeightPiece> pieces_;
  int num_sources_;
  device::HostWindows windows_;
  std::vector<std::string> digests_;  // by source, of the last version
};

}  // namespace temper

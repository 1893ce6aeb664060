#pragma once
// Collectives on tensors over the ranks of one axis (dp, tp, pp). They are in order of the context's lane,
// and what they give may be used on it when they return. Sums are an exchange of pieces and an addition in
// ascending rank order, so that a sum is a pure function of its inputs and of the number of ranks, whatever
// carries the bytes. Every call names what it is about, for the report of a wait over its limit.

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/comm/grid.h"
#include "src/comm/transport.h"
#include "src/core/ctx.h"
#include "src/core/flat_range.h"

namespace temper {

/// Bytes that went over each axis of a role's ranks; where gradients are summed over several they count as
/// dp's.
struct AxisBytes : PerAxis<int64_t> {
  AxisBytes() = default;
  AxisBytes(std::initializer_list<std::pair<Axis, int64_t>> bytes) {
    for (const auto& [axis, n] : bytes) (*this)[axis] = n;
  }
};
AxisBytes operator+(const AxisBytes& a, const AxisBytes& b);
AxisBytes operator*(int64_t times, const AxisBytes& a);
inline AxisBytes operator-(const AxisBytes& a, const AxisBytes& b) { return a + -1 * b; }

class Collectives {
 public:
  explicit Collectives(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const char* carrier() const { return transport_->carrier(); }
  bool can_record() const { return transport_->can_record(); }
  /// To other ranks, so far.
  int64_t bytes_sent() const { return bytes_sent_; }

  /// A context whose exchanges and sums go on beside the work of c. It has a lane of its own, of which there
  /// is one for all callers, and c's scratch: neither of the two takes memory there that the other still has
  /// work on.
  Ctx beside(Ctx& c);

  /// flat [n]: this rank's shard_range becomes the sum over ranks; the rest is left as it was. fp32, fp64;
  /// bf16 is added in fp32 and rounded once. `pieces`: of make_pieces, else it is taken from scratch.
  void reduce_scatter_sum(Ctx& c, const Tensor& flat, const char* what, const Tensor& pieces = {});
  /// own, that shard of sums elsewhere: to what it has comes the sum of flat over ranks. flat is left as it
  /// was.
  void reduce_scatter_onto(Ctx& c, const Tensor& own, const CTensor& flat, const char* what,
                           const Tensor& pieces = {});
  /// Memory for sums of up to `elements` on a lane beside, in scratch: at most 64 MiB, on a GPU 128. Other
  /// sums take twice that on a GPU, where pieces are added while the next ones are on their way; none where
  /// the transport adds.
  Tensor make_pieces(Ctx& c, int64_t elements, DType dtype) const;
  /// flat [n]: every rank's shard_range is copied to all ranks.
  void all_gather_shards(Ctx& c, const Tensor& flat, const char* what);
  /// flat [n]: becomes the sum over ranks, the same bits on all of them.
  void all_reduce_sum(Ctx& c, const Tensor& flat, const char* what);
  /// The same of parts [n] in the accumulate dtype of sum [n], rounded once.
  void all_reduce_sum_into(Ctx& c, const Tensor& sum, const CTensor& parts, const char* what);
  /// sum = over ranks of the range `rank()` of `parts` [n], in the accumulate dtype of sum, which may be its
  /// memory; rounded once. `ranges`: by rank. `pieces`: as for reduce_scatter_sum.
  void reduce_scatter_ranges(Ctx& c, const Tensor& sum, const CTensor& parts,
                             std::span<const FlatRange> ranges, const char* what, const Tensor& pieces = {});
  /// flat [n]: the range of every rank is copied to all ranks. `ranges`: by rank.
  void all_gather_ranges(Ctx& c, const Tensor& flat, std::span<const FlatRange> ranges, const char* what);
  /// out [size, ...]: `mine` of every rank in rank order, each of the same size.
  void all_gather(Ctx& c, const Tensor& out, const CTensor& mine, const char* what);
  /// Parcels of the caller's: to others only.
  void exchange(Ctx& c, std::span<const Parcel> out, std::span<const Parcel> in, const char* what);
  /// The same of all ranks at once, between every two; the longest parcel that a rank sends or receives is as
  /// long as that of any other rank.
  void exchange_all(Ctx& c, std::span<const Parcel> out, std::span<const Parcel> in, const char* what);
  void send(Ctx& c, const CTensor& t, int to, const char* what);
  void recv(Ctx& c, const Tensor& t, int from, const char* what);
  /// Both at once; either may be empty.
  void send_recv(Ctx& c, const CTensor& out, int to, const Tensor& in, int from, const char* what);

 private:
  struct Piece;
  void reduce_scatter(Ctx& c, const Tensor& sum, const CTensor& parts, std::span<const FlatRange> ranges,
                      const char* what, const Tensor& pieces, GradWrite write);
  /// The same by a transport that adds.
  void exchange_sum(Lane& lane, const Tensor& sum, const CTensor& parts, std::span<const FlatRange> ranges,
                    const char* what, GradWrite write);
  std::vector<FlatRange> shards(int64_t elements) const;
  /// The elements of one rank's range in a piece.
  int64_t step(Device device, DType dtype) const;
  Lane& lane_beside(Device device);
  void exchange_piece(Lane& lane, const Piece& piece, const char* what);
  void add_piece(Ctx& c, const Piece& piece);

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Lane> beside_;  // it ends before what its work uses
  int64_t bytes_sent_ = 0;
};

}  // namespace temper

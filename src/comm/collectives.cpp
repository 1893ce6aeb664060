#include "src/comm/collectives.h"

#include <vector>

#include "src/ops/elementwise.h"

namespace temper {

AxisBytes operator+(const AxisBytes& a, const AxisBytes& b) {
  AxisBytes sum;
  for (const AxisRow& row : kTrafficAxes) sum[row.axis] = a[row.axis] + b[row.axis];
  return sum;
}

AxisBytes operator*(int64_t times, const AxisBytes& a) {
  AxisBytes product;
  for (const AxisRow& row : kTrafficAxes) product[row.axis] = times * a[row.axis];
  return product;
}
namespace {

/// The size of the pieces that are added at once: on a GPU smaller ones cost more calls than they save
/// memory.
int64_t piece_bytes(Device device) { return int64_t{like_gpu(device) ? 128 : 64} << 20; }

char* bytes_at(const CTensor& flat, int64_t element) {
  return static_cast<char*>(const_cast<void*>(flat.data)) + element * dtype_size(flat.dtype);
}

Parcel parcel(int peer, const CTensor& flat, const FlatRange& range) {
  return {peer, bytes_at(flat, range.begin), range.size() * dtype_size(flat.dtype)};
}

/// Elements [at, at + count) of a range, as far as it goes.
FlatRange part_of(const FlatRange& range, int64_t at, int64_t count) {
  return {std::min(range.end, range.begin + at), std::min(range.end, range.begin + at + count)};
}

Tensor view_range(const CTensor& flat, const FlatRange& range) {
  return make_tensor(bytes_at(flat, range.begin), flat.dtype, {range.size()});
}

}  // namespace

std::vector<FlatRange> Collectives::shards(int64_t elements) const {
  std::vector<FlatRange> all;
  for (int rank = 0; rank < size(); ++rank) all.push_back(shard_range(elements, rank, size()));
  return all;
}

void Collectives::exchange(Ctx& c, std::span<const Parcel> out, std::span<const Parcel> in,
                           const char* what) {
  for (const Parcel& p : out) bytes_sent_ += p.bytes;
  transport_->exchange(c.lane, out, in, what);
}

void Collectives::exchange_all(Ctx& c, std::span<const Parcel> out, std::span<const Parcel> in,
                               const char* what) {
  for (const Parcel& p : out) bytes_sent_ += p.bytes;
  transport_->exchange_all(c.lane, out, in, what);
}

Lane& Collectives::lane_beside(Device device) {
  if (!beside_) beside_ = std::make_unique<Lane>(device, Turn::first);
  return *beside_;
}

Ctx Collectives::beside(Ctx& c) { return {c.scratch, lane_beside(c.lane.device()), c.threads, nullptr}; }

int64_t Collectives::step(Device device, DType dtype) const {
  return piece_bytes(device) / dtype_size(dtype) / size() / 64 * 64;
}

/// A part of each rank's range: this rank's one of every rank, in memory or where it lies, to be added.
struct Collectives::Piece {
  std::span<const FlatRange> ranges;
  int64_t at, step;  // in every range
  CTensor parts;
  Tensor sum, memory;  // [own range], [ranks * step]
  int me;
  GradWrite write;

  int64_t ranks() const { return std::ssize(ranges); }
  FlatRange of(int64_t peer) const { return part_of(ranges[static_cast<size_t>(peer)], at, step); }
  Tensor got() const {
    const int64_t own = of(me).size();
    return make_tensor(memory.raw(), parts.dtype, {ranks(), own});
  }
};

void Collectives::exchange_piece(Lane& lane, const Piece& piece, const char* what) {
  const Tensor got = piece.got();
  const int64_t own = got.dim(1);
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    out.push_back(parcel(peer, piece.parts, piece.of(peer)));
    in.push_back(parcel(peer, got, {peer * own, (peer + 1) * own}));
  }
  transport_->exchange_all(lane, out, in, what);
}

void Collectives::add_piece(Ctx& c, const Piece& piece) {
  const FlatRange mine = piece.of(rank());
  if (mine.size() == 0) return;
  const int64_t begin = piece.ranges[static_cast<size_t>(rank())].begin;
  const Tensor got = piece.got(), own = view_range(piece.parts, mine),
               to = view_range(piece.sum, {mine.begin - begin, mine.end - begin});
  if (like_gpu(c.device)) return sum_in_order(c, to, got, own, rank(), piece.write);
  // Host memory that nobody writes to is not taken, and the plan counts what is asked for.
  device::copy(c.lane, bytes_at(got, rank() * mine.size()), own.data, own.bytes());
  sum_in_order(c, to, got, {}, -1, piece.write);
}

Tensor Collectives::make_pieces(Ctx& c, int64_t elements, DType dtype) const {
  return c.scratch.make({size() * std::min(step(c.device, dtype), shard_range(elements, 0, size()).size())},
                        dtype);
}

void Collectives::exchange_sum(Lane& lane, const Tensor& sum, const CTensor& parts,
                               std::span<const FlatRange> ranges, const char* what, GradWrite write) {
  std::vector<Parcel> out;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) out.push_back(parcel(peer, parts, ranges[static_cast<size_t>(peer)]));
  const FlatRange mine = ranges[static_cast<size_t>(rank())];
  RankSum own;
  if (mine.size() > 0)
    own = {make_tensor(sum.raw(), sum.dtype, {mine.size()}), view_range(parts, mine), rank(), write};
  transport_->exchange_sum(lane, out, own, what);
}

void Collectives::reduce_scatter(Ctx& c, const Tensor& sum, const CTensor& parts,
                                 std::span<const FlatRange> ranges, const char* what, const Tensor& pieces,
                                 GradWrite write) {
  int64_t longest = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t own = ranges[static_cast<size_t>(peer)].size();
    longest = std::max(longest, own);
    // All pieces, also where only the first is exchanged.
    if (peer != rank()) bytes_sent_ += own * dtype_size(parts.dtype);
  }
  if (longest == 0) return;
  // Not beside other work: kernels that add wait there for a multiprocessor, and pieces behind them do.
  if (pieces.empty() && transport_->adds() && c.device == Device::cuda)
    return exchange_sum(c.lane, sum, parts, ranges, what, write);
  ArenaScope scope(c.scratch);
  const int64_t one = std::min(step(c.device, parts.dtype), longest), half = size() * one;
  // On a GPU pieces travel on the lane beside while those before them are added, where c is not on it.
  const bool overlap =
      pieces.empty() && longest > one && like_gpu(c.device) && &c.lane != &lane_beside(c.lane.device());
  const Tensor memory = pieces.empty() ? c.scratch.make({(overlap ? 2 : 1) * half}, parts.dtype) : pieces;
  CHECK(memory.size() >= half, "{} elements of memory for pieces of {}", memory.size(), half);
  const auto piece = [&](int64_t number) {
    const int64_t begin = overlap ? number % 2 * half : 0;
    return Piece{ranges, number * one, one, parts, sum, rows(memory, begin, begin + half), rank(), write};
  };
  Lane& carrying = overlap ? lane_beside(c.lane.device()) : c.lane;
  if (overlap) carrying.follow(c.lane);
  const int64_t count =
      counts_only(c.device) ? 1 : (longest + one - 1) / one;  // none takes more than the first
  exchange_piece(carrying, piece(0), what);
  for (int64_t number = 0; number < count; ++number) {
    if (overlap) c.lane.follow(carrying);
    if (overlap && number + 1 < count) {
      carrying.follow(c.lane);  // the sum before, of the memory that the next piece takes
      exchange_piece(carrying, piece(number + 1), what);
    }
    add_piece(c, piece(number));
    if (!overlap && number + 1 < count) exchange_piece(carrying, piece(number + 1), what);
  }
}

void Collectives::reduce_scatter_ranges(Ctx& c, const Tensor& sum, const CTensor& parts,
                                        std::span<const FlatRange> ranges, const char* what,
                                        const Tensor& pieces) {
  reduce_scatter(c, sum, parts, ranges, what, pieces, GradWrite::first);
}

void Collectives::reduce_scatter_onto(Ctx& c, const Tensor& own, const CTensor& flat, const char* what,
                                      const Tensor& pieces) {
  reduce_scatter(c, own, flat, shards(flat.size()), what, pieces, GradWrite::add);
}

void Collectives::reduce_scatter_sum(Ctx& c, const Tensor& flat, const char* what, const Tensor& pieces) {
  if (size() == 1) return;
  const std::vector<FlatRange> ranges = shards(flat.size());
  reduce_scatter_ranges(c, view_range(flat, ranges[static_cast<size_t>(rank())]), flat, ranges, what, pieces);
}

void Collectives::all_reduce_sum_into(Ctx& c, const Tensor& sum, const CTensor& parts, const char* what) {
  const std::vector<FlatRange> ranges = shards(sum.size());
  reduce_scatter_ranges(c, view_range(sum, ranges[static_cast<size_t>(rank())]), parts, ranges, what);
  all_gather_ranges(c, sum, ranges, what);
}

void Collectives::all_gather_ranges(Ctx& c, const Tensor& flat, std::span<const FlatRange> ranges,
                                    const char* what) {
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    out.push_back(parcel(peer, flat, ranges[static_cast<size_t>(rank())]));
    in.push_back(parcel(peer, flat, ranges[static_cast<size_t>(peer)]));
  }
  exchange_all(c, out, in, what);
}

void Collectives::all_gather_shards(Ctx& c, const Tensor& flat, const char* what) {
  all_gather_ranges(c, flat, shards(flat.size()), what);
}

void Collectives::all_reduce_sum(Ctx& c, const Tensor& flat, const char* what) {
  reduce_scatter_sum(c, flat, what);
  all_gather_shards(c, flat, what);
}

void Collectives::all_gather(Ctx& c, const Tensor& out, const CTensor& mine, const char* what) {
  CHECK(out.bytes() == mine.bytes() * size(), "a gather of {} from {} ranks into {}", mine.shape_text(),
        size(), out.shape_text());
  std::vector<Parcel> sent, got;
  for (int peer = 0; peer < size(); ++peer) {
    char* place = static_cast<char*>(out.raw()) + peer * mine.bytes();
    if (peer == rank()) {
      device::copy(c.lane, place, mine.data, mine.bytes());
      continue;
    }
    sent.push_back(parcel(peer, mine));
    got.push_back({peer, place, mine.bytes()});
  }
  exchange_all(c, sent, got, what);
}

void Collectives::send(Ctx& c, const CTensor& t, int to, const char* what) {
  const Parcel one = parcel(to, t);
  exchange(c, {&one, 1}, {}, what);
}

void Collectives::send_recv(Ctx& c, const CTensor& out, int to, const Tensor& in, int from,
                            const char* what) {
  const Parcel sent = parcel(to, out), got = parcel(from, in);
  exchange(c, {&sent, out.empty() ? 0u : 1u}, {&got, in.empty() ? 0u : 1u}, what);
}

void Collectives::recv(Ctx& c, const Tensor& t, int from, const char* what) {
  const Parcel one = parcel(from, t);
  exchange(c, {}, {&one, 1}, what);
}

}  // namespace temper

#include "src/comm/collectives.h"

#include <vector>

#include "src/ops/elementwise.h"

namespace temper {
namespace {

constexpr int64_t kSumBytes = int64_t{64} << 20;  // of the pieces that are added at once

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

void Collectives::reduce_scatter_ranges(Ctx& c, const Tensor& sum, const CTensor& parts,
                                        std::span<const FlatRange> ranges, const char* what) {
  const int ranks = size(), me = rank();
  const FlatRange& range = ranges[static_cast<size_t>(me)];
  for (int peer = 0; peer < ranks; ++peer)  // all pieces, also where only the first is exchanged
    if (peer != me) bytes_sent_ += ranges[static_cast<size_t>(peer)].size() * dtype_size(parts.dtype);
  int64_t longest = 0;
  for (const FlatRange& r : ranges) longest = std::max(longest, r.size());
  const int64_t step = std::max<int64_t>(1, kSumBytes / dtype_size(parts.dtype) / ranks);
  for (int64_t at = 0; at < longest; at += step) {
    ArenaScope scope(c.scratch);
    const FlatRange mine = part_of(range, at, step);
    const Tensor got = c.scratch.make({ranks, mine.size()}, parts.dtype);
    std::vector<Parcel> out, in;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == me) continue;
      out.push_back(parcel(peer, parts, part_of(ranges[static_cast<size_t>(peer)], at, step)));
      in.push_back(parcel(peer, got, {peer * mine.size(), (peer + 1) * mine.size()}));
    }
    transport_->exchange(c.lane, out, in, what);
    const Tensor own = view_range(parts, mine),
                 to = view_range(sum, {mine.begin - range.begin, mine.end - range.begin});
    if (mine.size() > 0 && like_gpu(c.device)) {
      sum_in_order(c, to, got, own, me);
    } else if (mine.size() > 0) {
      // Host memory that nobody writes to is not taken, and the plan counts what is asked for.
      device::copy(c.lane, bytes_at(got, me * mine.size()), own.data, own.bytes());
      sum_in_order(c, to, got);
    }
    if (counts_only(c.device)) return;  // no piece takes more than the first
  }
}

void Collectives::reduce_scatter_sum(Ctx& c, const Tensor& flat, const char* what) {
  if (size() == 1) return;
  const std::vector<FlatRange> ranges = shards(flat.size());
  reduce_scatter_ranges(c, view_range(flat, ranges[static_cast<size_t>(rank())]), flat, ranges, what);
}

void Collectives::all_reduce_sum_into(Ctx& c, const Tensor& sum, const CTensor& parts, const char* what) {
  const std::vector<FlatRange> ranges = shards(sum.size());
  reduce_scatter_ranges(c, view_range(sum, ranges[static_cast<size_t>(rank())]), parts, ranges, what);
  all_gather_ranges(c, sum, ranges, what);
}

void Collectives::reduce_scatter_blocks(Ctx& c, const Tensor& sum, const CTensor& blocks, const char* what) {
  std::vector<FlatRange> ranges;
  for (int64_t rank = 0; rank < size(); ++rank)
    ranges.push_back({rank * sum.size(), (rank + 1) * sum.size()});
  CHECK(blocks.size() == size() * sum.size(), "{} elements in {} blocks of {}", blocks.size(), size(),
        sum.size());
  reduce_scatter_ranges(c, sum, blocks, ranges, what);
}

void Collectives::all_gather_ranges(Ctx& c, const Tensor& flat, std::span<const FlatRange> ranges,
                                    const char* what) {
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    out.push_back(parcel(peer, flat, ranges[static_cast<size_t>(rank())]));
    in.push_back(parcel(peer, flat, ranges[static_cast<size_t>(peer)]));
  }
  exchange(c, out, in, what);
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
    sent.push_back({peer, const_cast<void*>(mine.data), mine.bytes()});
    got.push_back({peer, place, mine.bytes()});
  }
  exchange(c, sent, got, what);
}

void Collectives::send(Ctx& c, const CTensor& t, int to, const char* what) {
  const Parcel one{to, const_cast<void*>(t.data), t.bytes()};
  exchange(c, {&one, 1}, {}, what);
}

void Collectives::send_recv(Ctx& c, const CTensor& out, int to, const Tensor& in, int from,
                            const char* what) {
  const Parcel sent{to, const_cast<void*>(out.data), out.bytes()}, got{from, in.raw(), in.bytes()};
  exchange(c, {&sent, out.empty() ? 0u : 1u}, {&got, in.empty() ? 0u : 1u}, what);
}

void Collectives::recv(Ctx& c, const Tensor& t, int from, const char* what) {
  const Parcel one{from, t.raw(), t.bytes()};
  exchange(c, {}, {&one, 1}, what);
}

}  // namespace temper

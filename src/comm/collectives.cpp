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

/// Part [at, at + count) of the shard of a rank.
FlatRange part_of_shard(int64_t elements, int rank, int size, int64_t at, int64_t count) {
  const FlatRange shard = shard_range(elements, rank, size);
  return {std::min(shard.end, shard.begin + at), std::min(shard.end, shard.begin + at + count)};
}

Tensor view_range(const Tensor& flat, const FlatRange& range) {
  return make_tensor(bytes_at(flat, range.begin), flat.dtype, {range.size()});
}

}  // namespace

void Collectives::reduce_scatter_sum(Ctx& c, const Tensor& flat, const char* what) {
  const int ranks = size(), me = rank();
  if (ranks == 1) return;
  const int64_t elements = flat.size(), longest = shard_range(elements, 0, ranks).size();
  const int64_t step = std::max<int64_t>(1, kSumBytes / dtype_size(flat.dtype) / ranks);
  for (int64_t at = 0; at < longest; at += step) {
    ArenaScope scope(c.scratch);
    const FlatRange mine = part_of_shard(elements, me, ranks, at, step);
    const Tensor parts = c.scratch.make({ranks, mine.size()}, flat.dtype);
    std::vector<Parcel> out, in;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == me) continue;
      out.push_back(parcel(peer, flat, part_of_shard(elements, peer, ranks, at, step)));
      in.push_back(parcel(peer, parts, {peer * mine.size(), (peer + 1) * mine.size()}));
    }
    const Tensor own = view_range(flat, mine);
    device::copy(c.lane, bytes_at(parts, me * mine.size()), own.data, own.bytes());
    transport_->exchange(c.lane, out, in, what);
    sum_in_order(c, own, parts);
  }
}

void Collectives::all_gather_shards(Ctx& c, const Tensor& flat, const char* what) {
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    out.push_back(parcel(peer, flat, shard_range(flat.size(), rank(), size())));
    in.push_back(parcel(peer, flat, shard_range(flat.size(), peer, size())));
  }
  transport_->exchange(c.lane, out, in, what);
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
  transport_->exchange(c.lane, sent, got, what);
}

void Collectives::send(Ctx& c, const CTensor& t, int to, const char* what) {
  const Parcel one{to, const_cast<void*>(t.data), t.bytes()};
  transport_->exchange(c.lane, {&one, 1}, {}, what);
}

void Collectives::recv(Ctx& c, const Tensor& t, int from, const char* what) {
  const Parcel one{from, t.raw(), t.bytes()};
  transport_->exchange(c.lane, {}, {&one, 1}, what);
}

}  // namespace temper

#pragma once
// Sequences that run over gated delta nets with a state, and where theirs lies.

#include "kernels/cpu/attention_batch.h"
#include "kernels/delta_types.h"

namespace temper::cpu {

/// The sequences of a batch with their lengths; checks that tails and slots are some of the pages.
inline std::vector<SequenceRows> running_sequences(const CTensor& cu_seqlens, int64_t tokens,
                                                   const DeltaPages& pages) {
  std::vector<SequenceRows> sequences = packed_sequences(cu_seqlens, tokens);
  const auto check = [](int64_t number, int64_t count, const char* what) {
    CHECK(number >= 0 && number < count, "{} {} of {}", what, number, count);
  };
  for (size_t n = 0; n < sequences.size(); ++n) {
    const int64_t length = pages.lengths.as<int32_t>()[n];
    CHECK(length >= sequences[n].rows, "{} rows of a sequence of length {}", sequences[n].rows, length);
    sequences[n].length = length;
    check(pages.tails.as<int32_t>()[n], pages.keys.dim(1), "tail");
    if (sequences[n].first_position() >= kDeltaChunk)
      check(pages.from.as<int32_t>()[n], pages.states.dim(1), "slot");
    if (length / kDeltaChunk > sequences[n].first_position() / kDeltaChunk)
      check(pages.to.as<int32_t>()[n], pages.states.dim(1), "slot");
  }
  return sequences;
}

/// One layer of DeltaPages, by sequence of the batch.
template <class S>
class DeltaTails {
  using A = Accumulate<S>;

 public:
  DeltaTails(const DeltaPages& pages, int64_t layer) : pages_(pages), layer_(layer) {}
  S* window(size_t n) const { return row<S>(pages_.windows, pages_.tails, n); }
  S* keys(size_t n) const { return row<S>(pages_.keys, pages_.tails, n); }
  S* writes(size_t n) const { return row<S>(pages_.writes, pages_.tails, n); }
  A* decays(size_t n) const { return row<A>(pages_.decays, pages_.tails, n); }
  const A* state_before(size_t n) const { return row<A>(pages_.states, pages_.from, n); }
  A* state_after(size_t n) const { return row<A>(pages_.states, pages_.to, n); }

 private:
  template <class T>
  T* row(const Tensor& t, const CTensor& numbers, size_t n) const {
    return t.as<T>() + (layer_ * t.dim(1) + numbers.as<int32_t>()[n]) * t.dim(2);
  }

  const DeltaPages& pages_;
  int64_t layer_;
};

}  // namespace temper::cpu

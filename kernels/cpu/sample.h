#pragma once
// The parts of sampling that stand alone: the noise of a word, the edits of logits, and the filters on the
// tempered logits of a row. Filters work on candidates in the order (t descending, id ascending); p and its
// sums are fp64, in that order.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/philox.h"
#include "kernels/types.h"

namespace temper::cpu {

/// plog(exponential_of(word)) of src/core/rng.h without a branch, so that a loop over words runs in vectors.
inline float log_exponential_of(uint32_t word) {
  constexpr uint32_t kRootHalf = 0x3F3504F3u;
  const bool upper = word >= 0x80000000u;
  const uint32_t k = upper ? ~word : word;
  const float u = static_cast<float>(2 * k + 1) * 0x1p-33f, h = 1.0f - u;
  const uint32_t bits = std::bit_cast<uint32_t>(upper ? h : u), i = bits - kRootHalf;
  const bool direct = upper && bits >= kRootHalf;
  const float m = std::bit_cast<float>((i & 0x7FFFFFu) + kRootHalf);
  const float e = static_cast<float>(static_cast<int32_t>(i) >> 23);
  return plog(-rng_detail::plog_poly(direct ? -u : m - 1.0f, direct ? 0.0f : e));
}

inline constexpr int64_t kNoiseGroup = 4 * kPhiloxBlocks;

/// The words of ids [first_id, first_id + kNoiseGroup): words[j][b] belongs to id first_id + 4b + j.
/// SampleKey::words for many blocks.
inline void word_group(PhiloxWords& words, const SampleKey& key, uint32_t position, int64_t first_id) {
  const uint32_t p = static_cast<uint32_t>(key.data_position & 0xfffff);
  for (int b = 0; b < kPhiloxBlocks; ++b) {
    words[0][b] = static_cast<uint32_t>(first_id / 4 + b);
    words[1][b] = position;
    words[2][b] = (p << 12) | static_cast<uint32_t>(key.sample);
    words[3][b] = static_cast<uint32_t>(key.data_position >> 20);
  }
  philox_blocks(words, key.seed);
}

/// noise[i] of ids [first_id, first_id + kNoiseGroup) at one position of one response.
inline void noise_group(float* noise, const SampleKey& key, uint32_t position, int64_t first_id) {
  PhiloxWords words;
  word_group(words, key, position, first_id);
  float by_word[4][kPhiloxBlocks];
  for (int j = 0; j < 4; ++j)
    for (int b = 0; b < kPhiloxBlocks; ++b) by_word[j][b] = log_exponential_of(words[j][b]);
  for (int b = 0; b < kPhiloxBlocks; ++b)
    for (int j = 0; j < 4; ++j) noise[4 * b + j] = by_word[j][b];
}

/// The logit that is drawn from in place of z. Every option that is off leaves its bits alone.
template <class A>
A edited_logit(A z, const LogitEdit& edit, const SampleOptions& o) {
  z += static_cast<A>(edit.bias);
  const A repetition = static_cast<A>(o.repetition_penalty);
  if (edit.seen) z = z > 0 ? z / repetition : z * repetition;
  if (edit.count == 0) return z;
  z -= static_cast<A>(o.frequency_penalty) * static_cast<A>(edit.count);
  return z - static_cast<A>(o.presence_penalty);
}

/// One id that may still be drawn, with its tempered logit.
template <class A>
struct Candidate {
  A t;
  int32_t id;
  double weight;  // e^(t - the largest t), once top_p needs it
};

template <class A>
bool comes_before(const Candidate<A>& a, const Candidate<A>& b) {
  return a.t > b.t || (a.t == b.t && a.id < b.id);
}

/// Keeps those with e^(t - max) >= min_p.
template <class A>
int64_t keep_min_p(Candidate<A>* list, int64_t count, double min_p) {
  const auto before = [](const Candidate<A>& a, const Candidate<A>& b) { return a.t < b.t; };
  const double most = static_cast<double>(std::max_element(list, list + count, before)->t);
  const double surely_out = most + std::log(min_p) - 1.0;  // spares the exponentials
  return std::remove_if(list, list + count,
                        [&](const Candidate<A>& c) {
                          const double t = static_cast<double>(c.t);
                          return t != most && (t < surely_out || std::exp(t - most) < min_p);
                        }) -
         list;
}

/// Keeps the smallest set of most probable ids whose mass reaches top_p. The list must be in order.
template <class A>
int64_t keep_top_p(Candidate<A>* list, int64_t count, double top_p) {
  double total = 0, before = 0;
  for (int64_t i = 0; i < count; ++i) {
    list[i].weight = std::exp(static_cast<double>(list[i].t) - static_cast<double>(list[0].t));
    total += list[i].weight;
  }
  int64_t kept = 0;
  for (; kept < count && (kept == 0 || before < top_p); ++kept) before += list[kept].weight / total;
  return kept;
}

/// min_p, then top_k, then top_p. Moves what is kept to the front and returns how many: at least one of count
/// >= 1.
template <class A>
int64_t filter(Candidate<A>* list, int64_t count, const SampleOptions& o) {
  if (o.min_p > 0) count = keep_min_p(list, count, o.min_p);
  if (o.top_k > 0 && o.top_k < count) {
    std::nth_element(list, list + o.top_k, list + count, comes_before<A>);
    count = o.top_k;
  }
  if (o.top_p < 1) {
    std::sort(list, list + count, comes_before<A>);
    count = keep_top_p(list, count, o.top_p);
  }
  return count;
}

}  // namespace temper::cpu

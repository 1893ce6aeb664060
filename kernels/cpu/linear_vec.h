#pragma once
// One vector register of the accumulate type, in three versions: AVX-512, AVX2 with FMA, and plain C++.
// Every operation is elementwise and exact in the IEEE sense, so the three give the same bits; only the
// number of elements per register (kWidth) differs. fold_lanes sums the 16 lanes of canonical.h in tree_sum's
// order.

#include "kernels/cpu/canonical.h"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

namespace temper::cpu {

template <class A>
struct Vec;

#if defined(__AVX512F__)

inline constexpr int kAccumulatorRegisters = 25;  // of 32: the rest holds operands

template <>
struct Vec<float> {
  static constexpr int kWidth = 16;
  __m512 v;
  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec all(float x) { return {_mm512_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec load(const bf16* p) {
    // Two instructions (with __builtin_convertvector six); maskz, as g++ 12 warns of the undefined one.
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xffff, narrow);
    return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16))};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
};
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec<float> operator+(Vec<float> a, Vec<float> b) { return {_mm512_add_ps(a.v, b.v)}; }

template <>
struct Vec<double> {
  static constexpr int kWidth = 8;
  __m512d v;
  static Vec zero() { return {_mm512_setzero_pd()}; }
  static Vec all(double x) { return {_mm512_set1_pd(x)}; }
  static Vec load(const double* p) { return {_mm512_loadu_pd(p)}; }
  void store(double* p) const { _mm512_storeu_pd(p, v); }
};
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
  return {_mm512_fmadd_pd(a.v, b.v, c.v)};
}
inline Vec<double> operator+(Vec<double> a, Vec<double> b) { return {_mm512_add_pd(a.v, b.v)}; }

#elif defined(__AVX2__) && defined(__FMA__)

inline constexpr int kAccumulatorRegisters = 12;  // of 16

template <>
struct Vec<float> {
  static constexpr int kWidth = 8;
  __m256 v;
  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec all(float x) { return {_mm256_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec load(const bf16* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
};
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec<float> operator+(Vec<float> a, Vec<float> b) { return {_mm256_add_ps(a.v, b.v)}; }

template <>
struct Vec<double> {
  static constexpr int kWidth = 4;
  __m256d v;
  static Vec zero() { return {_mm256_setzero_pd()}; }
  static Vec all(double x) { return {_mm256_set1_pd(x)}; }
  static Vec load(const double* p) { return {_mm256_loadu_pd(p)}; }
  void store(double* p) const { _mm256_storeu_pd(p, v); }
};
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
  return {_mm256_fmadd_pd(a.v, b.v, c.v)};
}
inline Vec<double> operator+(Vec<double> a, Vec<double> b) { return {_mm256_add_pd(a.v, b.v)}; }

#else

inline constexpr int kAccumulatorRegisters = 8;

template <class A>
struct Vec {
  static constexpr int kWidth = 4;
  A v[kWidth];
  static Vec zero() { return all(A(0)); }
  static Vec all(A x) { return {{x, x, x, x}}; }
  template <class S>
  static Vec load(const S* p) {
    return {{cpu::load(p[0]), cpu::load(p[1]), cpu::load(p[2]), cpu::load(p[3])}};
  }
  void store(A* p) const {
    for (int i = 0; i < kWidth; ++i) p[i] = v[i];
  }
};
template <class A>
inline Vec<A> fma(const Vec<A>& a, const Vec<A>& b, const Vec<A>& c) {
  Vec<A> r;
  for (int i = 0; i < Vec<A>::kWidth; ++i) r.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return r;
}
template <class A>
inline Vec<A> operator+(const Vec<A>& a, const Vec<A>& b) {
  Vec<A> r;
  for (int i = 0; i < Vec<A>::kWidth; ++i) r.v[i] = a.v[i] + b.v[i];
  return r;
}

#endif

/// Keeps an operand that several multiply-adds share in its register (the compiler would load it again for
/// each).
template <class A>
inline void keep_in_register([[maybe_unused]] Vec<A>& x) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(x.v));
#endif
}

/// Registers that hold the kLanes partial sums of one output.
template <class A>
inline constexpr int kParts = kLanes / Vec<A>::kWidth;

#if defined(__AVX512F__)
/// The two halves of each 2*kSpan elements of a, then those of b, added: one step of the tree for two
/// registers.
template <int kSpan>
inline __m512 fold_pair(__m512 a, __m512 b) {
  if constexpr (kSpan == 8)
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  else if constexpr (kSpan == 4)
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  else if constexpr (kSpan == 2)  // here and below inside each 128 bits, which is one instruction
    return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  else
    return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
           __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

/// tree_sum of 16 outputs at once: each step folds two registers into one.
inline __m512 fold_16(const Vec<float>* lanes) {
  __m512 t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)  // element 4b+e of the result comes from register 4e+b of the steps
    for (int e = 0; e < 4; ++e) t[4 * e + i] = lanes[4 * i + e].v;
  for (int i = 0; i < 8; ++i) t[i] = fold_pair<8>(t[2 * i], t[2 * i + 1]);
  for (int i = 0; i < 4; ++i) t[i] = fold_pair<4>(t[2 * i], t[2 * i + 1]);
  for (int i = 0; i < 2; ++i) t[i] = fold_pair<2>(t[2 * i], t[2 * i + 1]);
  return fold_pair<1>(t[0], t[1]);
}
#endif

/// sums[i] = tree_sum of the i-th output's lanes, i < kCount.
template <class A, int kCount>
inline void fold_lanes(const Vec<A> (&lanes)[kCount][kParts<A>], A* sums) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<A, float> && kCount >= 4) {
#pragma GCC unroll 4
    for (int begin = 0; begin < kCount; begin += 16) {
      Vec<float> group[16];
      const int count = kCount - begin < 16 ? kCount - begin : 16;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) group[i] = lanes[i < count ? begin + i : begin][0];
      _mm512_storeu_ps(sums + begin, fold_16(group));
    }
    return;
  }
#endif
  for (int i = 0; i < kCount; ++i) {
    A all[kLanes];
    for (int p = 0; p < kParts<A>; ++p) lanes[i][p].store(all + p * Vec<A>::kWidth);
    sums[i] = tree_sum(all);
  }
}

}  // namespace temper::cpu

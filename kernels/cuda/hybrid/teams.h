#pragma once
// Teams of neighbouring threads that have a head each, a group of eight elements a thread.

#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/device/hybrid.cuh"
#include "kernels/cuda/norm.h"

namespace temper::cuda {

inline constexpr int kTeamThreads = 256;  // of a block

/// The sum over a team, in each of its threads. Zeros of threads beyond the head do not show: teams of any
/// size give the bits of a warp.
template <int kLanes>
TEMPER_DEVICE float team_sum(float x) {
#pragma unroll
  for (int w = kLanes / 2; w > 0; w /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, w));
  return x;
}

/// go(std::integral_constant<int, lanes>{}) for the smallest team that holds a head.
template <class Go>
void with_team(int64_t width, Go&& go) {
  CHECK(width <= kMaxHeadDim, "heads of {}", width);
  if (width <= 64)
    go(std::integral_constant<int, 8>{});
  else if (width <= 128)
    go(std::integral_constant<int, 16>{});
  else
    go(std::integral_constant<int, 32>{});
}

/// Whether groups can be read by 16 bytes: these tensors, with rows, heads and columns of these widths.
inline bool lies_in_groups(std::initializer_list<CTensor> tensors, std::initializer_list<int64_t> widths) {
  bool lies = true;
  for (const CTensor& t : tensors) lies = lies && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
  for (const int64_t width : widths) lies = lies && width % kGroup == 0;
  return lies;
}

/// Heads of all tokens, counted in 32 bits.
inline int heads_of_all(int64_t tokens, int64_t heads) {
  CHECK(tokens * heads < int64_t{1} << 31, "{} heads of {} tokens", heads, tokens);
  return static_cast<int>(tokens * heads);
}

}  // namespace temper::cuda

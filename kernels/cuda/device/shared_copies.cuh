#pragma once
// Copies of single 16 bytes from global to shared memory that go on while a kernel computes, and loads and
// stores of shared memory by its addresses.

#include "kernels/cuda/device/ptx.cuh"

namespace temper::cuda {

/// Zeros where nothing is `there`.
PTX void copy_async16(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
PTX void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All groups of this thread but the last `N` have arrived.
template <int N>
PTX void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
PTX void store_shared16(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
PTX void store_shared4(uint32_t to, uint32_t a) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(a) : "memory");
}
/// Four tiles of 8 x 8, each stored with its columns as rows.
PTX void store_matrices_turned(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}
PTX uint4 load_shared16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
PTX uint32_t load_shared4(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}

}  // namespace temper::cuda

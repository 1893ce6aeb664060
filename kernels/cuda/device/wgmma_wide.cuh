#pragma once
// wgmma wrappers of 256 columns (sm_90a): bf16 operands in shared memory, 128 fp32 accumulators a thread. Each
// operand K-major, or "turned": its other dimension lies innermost. The left one may also lie in registers.

#include "kernels/cuda/device/wgmma.cuh"

namespace temper::cuda {

// clang-format off
#define TEMPER_REGISTERS_128 TEMPER_REGISTERS_64 \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95" \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define TEMPER_ACCUMULATORS_OF_8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
  "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define TEMPER_ACCUMULATORS_128(d) TEMPER_ACCUMULATORS_64(d), \
  TEMPER_ACCUMULATORS_OF_8(d, 64), TEMPER_ACCUMULATORS_OF_8(d, 72), TEMPER_ACCUMULATORS_OF_8(d, 80), \
  TEMPER_ACCUMULATORS_OF_8(d, 88), TEMPER_ACCUMULATORS_OF_8(d, 96), TEMPER_ACCUMULATORS_OF_8(d, 104), \
  TEMPER_ACCUMULATORS_OF_8(d, 112), TEMPER_ACCUMULATORS_OF_8(d, 120)
// clang-format on

/// d = (keep ? d : 0) + A B
#define TEMPER_WGMMA_WIDE(NAME, TURNED_A, TURNED_B)                                                         \
  PTX void NAME(float(&d)[128], uint64_t a, uint64_t b, int keep) {                                         \
    asm volatile(                                                                                           \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 " \
        "{" TEMPER_REGISTERS_128 "}, %128, %129, p, 1, 1, " #TURNED_A ", " #TURNED_B ";\n}"                 \
        : TEMPER_ACCUMULATORS_128(d)                                                                        \
        : "l"(a), "l"(b), "r"(keep));                                                                       \
  }
TEMPER_WGMMA_WIDE(wgmma_ss, 0, 0)
TEMPER_WGMMA_WIDE(wgmma_ss_turned, 0, 1)
TEMPER_WGMMA_WIDE(wgmma_tn, 1, 1)
#undef TEMPER_WGMMA_WIDE

/// d = (keep ? d : 0) + A B, A four registers a thread, B turned.
PTX void wgmma_rs_transposed(float (&d)[128], const uint32_t* a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{" TEMPER_REGISTERS_128 "}, {%128,%129,%130,%131}, %132, p, 1, 1, 1;\n}"
      : TEMPER_ACCUMULATORS_128(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

}  // namespace temper::cuda

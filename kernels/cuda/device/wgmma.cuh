#pragma once
// wgmma wrappers (sm_90a), bf16 operands, fp32 accumulators: m64nNk16 with N = 2 * registers. The operand
// lists of inline assembly have to be spelled out; the macros below do it once per count of registers.

#include <cstdint>

#include "kernels/cuda/device/ptx.cuh"

namespace temper::cuda {

// clang-format off
#define TEMPER_REGISTERS_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define TEMPER_ACCUMULATORS_8(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
  "+f"(d[6]), "+f"(d[7])
#define TEMPER_REGISTERS_12 TEMPER_REGISTERS_8 \
  ",%8,%9,%10,%11"
#define TEMPER_ACCUMULATORS_12(d) TEMPER_ACCUMULATORS_8(d), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define TEMPER_REGISTERS_16 TEMPER_REGISTERS_12 \
  ",%12,%13,%14,%15"
#define TEMPER_ACCUMULATORS_16(d) TEMPER_ACCUMULATORS_12(d), \
  "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define TEMPER_REGISTERS_24 TEMPER_REGISTERS_16 \
  ",%16,%17,%18,%19,%20,%21,%22,%23"
#define TEMPER_ACCUMULATORS_24(d) TEMPER_ACCUMULATORS_16(d), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), \
  "+f"(d[22]), "+f"(d[23])
#define TEMPER_REGISTERS_32 TEMPER_REGISTERS_24 \
  ",%24,%25,%26,%27,%28,%29,%30,%31"
#define TEMPER_ACCUMULATORS_32(d) TEMPER_ACCUMULATORS_24(d), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
  "+f"(d[30]), "+f"(d[31])
#define TEMPER_REGISTERS_48 TEMPER_REGISTERS_32 \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TEMPER_ACCUMULATORS_48(d) TEMPER_ACCUMULATORS_32(d), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), \
  "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), \
  "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define TEMPER_REGISTERS_64 TEMPER_REGISTERS_48 \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TEMPER_ACCUMULATORS_64(d) TEMPER_ACCUMULATORS_48(d), \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
  "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), \
  "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
// clang-format on

// d = (keep ? d : 0) + A B^T, both in shared memory, K-major.
#define TEMPER_WGMMA_SS(REGISTERS, COLUMNS, A, B, KEEP)                                                      \
  PTX void wgmma_ss(float(&d)[REGISTERS], uint64_t a, uint64_t b, int keep) {                                \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #KEEP                                                  \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #COLUMNS                                          \
                 "k16.f32.bf16.bf16 {" TEMPER_REGISTERS_##REGISTERS "}, %" #A ", %" #B ", p, 1, 1, 0, 0;\n}" \
                 : TEMPER_ACCUMULATORS_##REGISTERS(d)                                                        \
                 : "l"(a), "l"(b), "r"(keep));                                                               \
  }
TEMPER_WGMMA_SS(8, 16, 8, 9, 10)
TEMPER_WGMMA_SS(12, 24, 12, 13, 14)
TEMPER_WGMMA_SS(16, 32, 16, 17, 18)
TEMPER_WGMMA_SS(24, 48, 24, 25, 26)
TEMPER_WGMMA_SS(32, 64, 32, 33, 34)
TEMPER_WGMMA_SS(48, 96, 48, 49, 50)
TEMPER_WGMMA_SS(64, 128, 64, 65, 66)

// d = (keep ? d : 0) + A B, both in shared memory, A M-major, B N-major.
PTX void wgmma_tn(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{" TEMPER_REGISTERS_32 "}, %32, %33, p, 1, 1, 1, 1;\n}"
      : TEMPER_ACCUMULATORS_32(d)
      : "l"(a), "l"(b), "r"(keep));
}

// A (four registers a thread) times B from shared memory: K-major (MAJOR 0) or N-major, transposed (MAJOR 1).
#define TEMPER_WGMMA_RS(NAME, REGISTERS, COLUMNS, A0, A1, A2, A3, B, KEEP, MAJOR)                          \
  PTX void NAME(float(&d)[REGISTERS], const uint32_t* a, uint64_t b, int keep) {                           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #KEEP                                                \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #COLUMNS                                        \
                 "k16.f32.bf16.bf16 {" TEMPER_REGISTERS_##REGISTERS "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 \
                                                                    "}, %" #B ", p, 1, 1, " #MAJOR ";\n}"  \
                 : TEMPER_ACCUMULATORS_##REGISTERS(d)                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));                         \
  }
TEMPER_WGMMA_RS(wgmma_rs, 64, 128, 64, 65, 66, 67, 68, 69, 0)
TEMPER_WGMMA_RS(wgmma_rs_transposed, 32, 64, 32, 33, 34, 35, 36, 37, 1)
TEMPER_WGMMA_RS(wgmma_rs_transposed, 64, 128, 64, 65, 66, 67, 68, 69, 1)

#undef TEMPER_WGMMA_SS
#undef TEMPER_WGMMA_RS

}  // namespace temper::cuda

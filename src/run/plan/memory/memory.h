#pragma once
// Bytes per rank and phase, of the whole process. What arenas hold is asked of the code that takes it
// (run/plan/dry_run.h); process, trajectories and windows are upper bounds.

#include "src/run/plan/plan.h"

namespace temper {

/// One row per kind of rank (which roles it has, whether it writes the run folder) and phase of a step, for a
/// plan whose other fields are filled.
std::vector<MemoryRow> plan_memory(const RunPlan& plan, const RunModels& models, const Config& config);

/// The rows of each phase, one for all ranks that hold the same in it, the largest first.
std::vector<std::vector<MemoryRow>> rows_by_phase(const RunPlan& plan);

/// Program, libraries and what they keep in the heap; the tokenizer, by the model's vocabulary; MPI, with
/// buffers for each rank; what the rank that writes the run folder keeps for it. Constants that fit runs of
/// tests/e2e/memory_plan_test.cpp: a large data set comes on top, with about 70 bytes a line.
int64_t process_bytes(const RunPlan& plan, int rank);

/// What is taken of a GPU before anything is allocated: the driver's context with its kernels, libraries and
/// their workspaces, graphs. Measured on an H200 with CUDA 13: 0.58 to 0.6 GiB.
inline constexpr int64_t kGpuContext = int64_t{640} << 20;

/// What is taken of a GPU by what exchanges tensors with other GPUs: what ranks that join an axis have from
/// then on, inboxes for ranks of the host (comm/gpu/neighbours.h) and, over several hosts, NCCL's; and NCCL's
/// connections, which come with the first exchange. (Where GPUs of a host do not reach each other, NCCL takes
/// more than is said here: 384 MiB for each.)
struct ExchangeMemory {
  int64_t joined = 0, connections = 0;
};
/// NCCL's kernels, once, half of them with the first exchange; where a rank joins an axis; for each rank of
/// another host, few channels of 12 MiB. Between two H200 with NCCL 2.28, when it carried within a host, too:
/// 188 and 248 MiB; 198; 384.
inline constexpr int64_t kExchangeKernels = int64_t{448} << 20, kJoined = int64_t{208} << 20,
                         kFarPeer = int64_t{32} << 20;
inline constexpr int kLinkedGpus = 8;
ExchangeMemory exchange_memory(const RunPlan& plan, int rank);

/// What is taken of a GPU for a moment of the first steps: the first product of each shape is tried out in
/// memory of its own, at most 0.9 GiB at vocabularies of 152k.
inline constexpr int64_t kProductTrials = int64_t{1} << 30;

/// What a save, and an export, hold beside the state that they write.
inline constexpr int64_t kSaveWindow = int64_t{8} << 20, kExportWindow = int64_t{32} << 20;

/// The part of a row for weights that a phase lends from host memory.
std::string lent_weights_name(const RolePlan& role);

/// The largest row: of the memory of the plan's device, and of the host.
int64_t peak_bytes(const RunPlan& plan);
int64_t host_peak_bytes(const RunPlan& plan);

/// "1.500 GiB".
std::string gib_text(int64_t bytes);

/// 2^63 - 1 where the product is larger.
int64_t saturating_multiply(int64_t a, int64_t b);

}  // namespace temper

#include "src/run/plan/memory/memory_advice.h"

namespace temper {

const char* memory_advice(MemoryUse use) {
  switch (use) {
    case MemoryUse::weights:
      return "set run.dtype = \"bf16\" or take a smaller model; those of a reference may lie in host memory "
             "(roles.reference.offload = true)";
    case MemoryUse::gradients:
      return "leave more for them: set optimizer.state = \"bf16\", train.offload.optimizer = true or "
             "train.recompute.granularity, or lower train.max_tokens_per_microbatch";
    case MemoryUse::optimizer:
      return "set optimizer.state = \"bf16\", optimizer.master = \"remainder\" or train.offload.optimizer = "
             "true, or start more trainer ranks, which share it";
    case MemoryUse::activations:
      return "set train.recompute.granularity = \"selective\" or \"full\", or lower "
             "train.max_tokens_per_microbatch";
    case MemoryUse::cache:
      return "lower rollout.kv_memory or, where a model has gated delta nets, "
             "rollout.max_running_sequences";
    case MemoryUse::scratch:
      return "lower train.max_tokens_per_microbatch, rollout.prefill_chunk_tokens or "
             "rollout.max_running_sequences";
    case MemoryUse::any:
      break;
  }
  return "lower train.max_tokens_per_microbatch or rollout.kv_memory";
}

}  // namespace temper

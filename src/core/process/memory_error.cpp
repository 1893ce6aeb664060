#include "src/core/process/memory_error.h"

#include <array>

#include "src/core/process/progress.h"

namespace temper {
namespace {

struct UseText {
  const char *name, *fix;
};

/// By MemoryUse.
constexpr std::array kUses{
    UseText{"memory", "lower train.max_tokens_per_microbatch or rollout.kv_memory"},
    UseText{"weights",
            "set run.dtype = \"bf16\" or take a smaller model; those of a reference may lie in "
            "host memory (roles.reference.offload = true)"},
    UseText{"gradients",
            "leave more for them: set optimizer.state = \"bf16\", train.offload.optimizer = true or "
            "train.recompute.granularity, or lower train.max_tokens_per_microbatch"},
    UseText{"optimizer state",
            "set optimizer.state = \"bf16\", optimizer.master = \"remainder\" or train.offload.optimizer = "
            "true, or start more trainer ranks, which share it"},
    UseText{"activations",
            "set train.recompute.granularity = \"selective\" or \"full\", or lower "
            "train.max_tokens_per_microbatch"},
    UseText{"KV cache", "lower rollout.kv_memory"},
    UseText{"scratch",
            "lower train.max_tokens_per_microbatch, rollout.prefill_chunk_tokens or "
            "rollout.max_running_sequences"}};

std::string place_text() {
  const ProgressState now = progress_state();
  const std::string of_step = now.step > 0 ? fmt::format(" of step {}", now.step) : "";
  return fmt::format("phase {}{}", phase_text(now.phase.name), of_step);
}

}  // namespace

Error out_of_memory(const MemoryShortage& s) {
  const UseText& use = kUses.at(static_cast<size_t>(s.use));
  const std::string left = s.gpu ? fmt::format("{} of the GPU's {} are free", s.free, s.total)
                                 : "the system gives no more (a limit of the job, or of `ulimit`?)";
  const std::string wanted = s.wanted > 0 ? fmt::format("{} bytes more are wanted beside {} that are held; ",
                                                        s.wanted - s.held, s.held)
                                          : "";
  const char* others = s.gpu ? "; `temper check` shows what a rank needs, `nvidia-smi` what else uses the GPU"
                             : "; `temper check` shows what a rank needs";
  return Error(Exit::storage, {.what = fmt::format("out of {} memory: {}", s.gpu ? "GPU" : "host", use.name),
                               .where = place_text(),
                               .why = wanted + left,
                               .fix = use.fix + std::string(others)});
}

}  // namespace temper

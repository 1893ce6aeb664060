#include "src/core/process/memory_error.h"

#include <array>

#include "src/core/process/progress.h"

namespace temper {
namespace {

/// By MemoryUse.
constexpr std::array kUses{"memory",      "weights",  "gradients", "optimizer state",
                           "activations", "KV cache", "scratch"};

std::string place_text() {
  const ProgressState now = progress_state();
  const std::string of_step = now.step > 0 ? fmt::format(" of step {}", now.step) : "";
  return fmt::format("phase {}{}", phase_text(now.phase.name), of_step);
}

}  // namespace

Error out_of_memory(const MemoryShortage& s) {
  const char* const use = kUses.at(static_cast<size_t>(s.use));
  const std::string left = s.gpu ? fmt::format("{} of the GPU's {} are free", s.free, s.total)
                                 : "the system gives no more (a limit of the job, or of `ulimit`?)";
  const std::string wanted = s.wanted > 0 ? fmt::format("{} bytes more are wanted beside {} that are held; ",
                                                        s.wanted - s.held, s.held)
                                          : "";
  const char* others = s.gpu ? ", `nvidia-smi` what else uses the GPU" : "";
  return Error(Exit::storage, {.what = fmt::format("out of {} memory: {}", s.gpu ? "GPU" : "host", use),
                               .where = place_text(),
                               .why = wanted + left,
                               .fix = fmt::format("`temper check` shows what a rank needs{}", others)});
}

}  // namespace temper

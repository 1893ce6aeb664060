// What a gated delta net costs beside its products: kernel times of forward and backward of a layer of the 9B
// shape (half of what three layers take more than one), and of them those of the kernels that its ops launch
// by themselves, in the share of their calls. Prints Markdown rows.

#include "src/models/layer_pass.h"
#include "src/ops/hybrid/delta.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/hybrid/shapes.h"
#include "tests/gpu/kernel_times.h"
#include "tests/support/model_pass.h"

namespace temper {
namespace {

constexpr DeltaShape kHeads{16, 32, 128, 128};
constexpr int64_t kTaps = 4;

using ByName = KernelTimes::ByName;

struct Directions {
  ByName forward, backward;
};

ByName times_of(Lane& lane, const std::function<void()>& run) {
  lane.wait();
  KernelTimes times;
  run();
  return times.of(lane);
}

/// Times of the first layers of the model, all of them gated delta nets, with little of a vocabulary.
Directions times_of_layers(int64_t layers, const std::vector<Trajectory>& sequences, int64_t context_tokens) {
  ModelConfig config = qwen3_5_9b(layers, context_tokens);
  config.vocab_size = 8192;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  Model model(config, ModelOptions{DType::bf16, context_tokens, /*with_gradients=*/true, Device::cuda});
  fill_parameters(model.parameters(), 0.01, 0.02);
  model.parameters().resume_grads(c.lane);
  model.parameters().clear_grads();
  const Microbatch mb = pack_all(sequences);
  Arena activations(Device::cuda);
  Ctx keeping{c.scratch, c.lane, c.threads, &activations};
  Directions times;
  for (int i = 0; i < 3; ++i) {  // the first ones test and choose products, and get memory
    const ArenaScope scope(c.scratch), kept(activations);
    const Batch batch = mb.batch(c);
    PassSaved saved;
    Tensor hidden;
    times.forward = times_of(c.lane, [&] { hidden = forward_pass(keeping, model, batch, &saved); });
    const Tensor dhidden = c.scratch.like(hidden);
    NormalBlock().fill(Device::cuda, dhidden, 0.01, 0, 7);
    times.backward = times_of(c.lane, [&] { backward_pass(keeping, model, batch, dhidden, saved, nullptr); });
  }
  return times;
}

/// Times of the ops between the products.
Directions times_of_ops(const std::vector<int32_t>& ends) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const int64_t tokens = ends.back(), heads = kHeads.value_heads;
  const NormalBlock block;
  const auto make = [&](std::initializer_list<int64_t> sizes, DType dtype) {
    const Tensor t = c.scratch.make(sizes, dtype);
    block.fill(Device::cuda, t, 0.05, 0, 1);
    return t;
  };
  const Tensor x = make({tokens, kHeads.projected_width()}, DType::bf16), dx = c.scratch.like(x),
               qkv = make({tokens, kHeads.qkv_width()}, DType::bf16), dqkv = c.scratch.like(qkv),
               beta = make({tokens, heads}, DType::f32), g = c.scratch.like(beta), decays = c.scratch.like(g),
               rstd = c.scratch.like(g), dbeta = c.scratch.like(g), dg = c.scratch.like(g),
               o = make({tokens, kHeads.value_width()}, DType::bf16), u = c.scratch.like(o),
               out = c.scratch.like(o), w = make({kHeads.qkv_width(), kTaps}, DType::bf16),
               dw = make({kHeads.qkv_width(), kTaps}, DType::f32), a_log = make({heads}, DType::f32),
               bias = make({heads}, DType::bf16), da_log = make({heads}, DType::f32),
               dbias = make({heads}, DType::f32), norm = make({kHeads.value_dim}, DType::f32),
               dnorm = make({kHeads.value_dim}, DType::f32);
  const CTensor cu = to_device(c, view_of(ends.data(), {std::ssize(ends)}));
  Directions times;
  for (int i = 0; i < 2; ++i) {  // the first one tests the kernels, with others
    times.forward = times_of(c.lane, [&] {
      delta_inputs_forward(c, qkv, beta, g, x, w, a_log, bias, cu, kHeads);
      delta_rule_forward(c, o, u, decays, qkv, beta, g, cu, kHeads);
      gated_norm_forward(c, out, rstd, o, x, norm, kHeads, 1e-6);
    });
    times.backward = times_of(c.lane, [&] {
      gated_norm_backward(c, out, dx, dnorm, out, o, x, norm, rstd, kHeads);
      delta_rule_backward(c, dqkv, dbeta, dg, out, qkv, beta, u, decays, cu, kHeads);
      delta_gates_backward(c, dx, da_log, dbias, dbeta, dg, beta, g, x, a_log, bias, kHeads);
      delta_conv_backward(c, dx, dw, dqkv, x, w, cu, kHeads);
    });
  }
  return times;
}

ByName layer_of(const ByName& one, const ByName& three) {
  ByName layer = three;
  for (auto& [name, time] : layer) {
    const auto first = one.find(name);
    const KernelTimes::Time less = first == one.end() ? KernelTimes::Time{} : first->second;
    time = {(time.milliseconds - less.milliseconds) / 2, (time.calls - less.calls) / 2};
  }
  return layer;
}

/// What the kernels of the ops take in a layer, which has other calls of some of them.
ByName own_times(const ByName& layer, const ByName& ops) {
  ByName own;
  for (const auto& [name, time] : layer) {
    const auto op = ops.find(name);
    if (op == ops.end() || time.calls == 0 || name.starts_with("copy") || name == "fill") continue;
    const int64_t calls = std::min(op->second.calls, time.calls);
    const double share = static_cast<double>(calls) / static_cast<double>(time.calls);
    own[name] = {time.milliseconds * share, calls};
  }
  return own;
}

double milliseconds_of(const ByName& times) {
  double sum = 0;
  for (const auto& [name, time] : times) sum += time.milliseconds;
  return sum;
}

void print(const std::string& direction, const ByName& layer, const ByName& ops) {
  const ByName own = own_times(layer, ops);
  const double all = milliseconds_of(layer), mixer = milliseconds_of(own);
  std::printf("| mixer without its products, %s | %.3f of %.3f ms | %.1f %% |\n", direction.c_str(), mixer,
              all, 100 * mixer / all);
  for (const auto& [name, time] : own)
    std::printf("| - %s, %ld calls | %.3f ms | %.1f %% |\n", readable(name).c_str(), time.calls, time.milliseconds,
                100 * time.milliseconds / all);
}

void bench(int32_t sequences, int32_t length) {
  std::vector<Trajectory> list;
  std::vector<int32_t> ends{0};
  for (int32_t i = 0; i < sequences; ++i) {
    Trajectory& t = list.emplace_back();
    t.prompt_tokens = {1};
    t.response.tokens = random_ids(length, 8000, static_cast<uint64_t>(i));
    ends.push_back(ends.back() + length);
  }
  const Directions one = times_of_layers(1, list, length + 1), three = times_of_layers(3, list, length + 1),
                   ops = times_of_ops(ends);
  const std::string tokens = fmt::format("{} x {} tokens", sequences, length);
  print("forward, " + tokens, layer_of(one.forward, three.forward), ops.forward);
  print("backward, " + tokens, layer_of(one.backward, three.backward), ops.backward);
}

}  // namespace
}  // namespace temper

int main() {
  using namespace temper;
  if (device::find_gpus().gpus.empty()) return 1;
  device::select_gpu(0);
  std::printf("%s\n", device::gpu_name().c_str());
  bench(4, 4096);
  bench(1, 32768);
}

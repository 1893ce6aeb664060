// Speed on one GPU with random weights of public shapes: scoring forward, attention, decoding. Prints
// Markdown rows. usage: model_bench [forward] [attention] [decode] [experts] [hybrid] [mixed] (all without
// arguments); experts and hybrid: the whole 30B-A3B and 3.5-9B shapes decode and score, in batches that fit.

#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "src/core/cuda.h"
#include "src/nn/hybrid/delta_net.h"
#include "src/ops/attention.h"
#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/gpu/cudnn_attention.h"
#include "tests/gpu/gpu_support.h"
#include "tests/gpu/hybrid/shapes.h"
#include "tests/gpu/kernel_times.h"
#include "tests/gpu/read_rate.h"
#include "tests/support/all_adapters.h"

namespace temper {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median seconds of `repeats` runs after one to warm up, each between synchronisations.
double seconds(Lane& lane, int repeats, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    lane.wait();
    const double start = now();
    run();
    lane.wait();
    times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats / 2)];
}

ModelConfig qwen3(int64_t hidden, int64_t ffn, int64_t layers, int64_t heads) {
  ModelConfig c;
  c.family = "qwen3";
  c.hidden_size = hidden;
  c.intermediate_size = ffn;
  c.num_layers = layers;
  c.num_heads = heads;
  c.num_kv_heads = 8;
  c.head_dim = 128;
  c.vocab_size = 151936;
  c.max_position_embeddings = 40960;
  c.qk_norm = true;
  c.tie_word_embeddings = hidden < 4096;
  c.rope.theta = 1e6;
  return c;
}

struct Bench {
  const char* name;
  ModelConfig config;
};

ModelConfig with_adapters(ModelConfig c) {
  c.adapters = adapters_of_all(32);
  return c;
}

std::unique_ptr<Model> random_model(const ModelConfig& config) {
  auto model = std::make_unique<Model>(config, ModelOptions{DType::bf16, 16384, false, Device::cuda});
  const double width = static_cast<double>(config.hidden_size);
  fill_parameters(model->parameters(), 0.7 / std::sqrt(width), 3.0 / std::sqrt(width));
  return model;
}

/// Qwen3-30B-A3B: 128 experts in each layer, 8 of them take a token.
ModelConfig qwen3_30b_a3b() {
  ModelConfig c = qwen3(2048, 6144, 48, 32);
  c.family = "qwen3_moe";
  c.num_kv_heads = 4;
  c.tie_word_embeddings = false;
  c.moe = {.num_experts = 128, .experts_per_token = 8, .expert_size = 768, .normalizes = true};
  for (int64_t layer = 0; layer < c.num_layers; ++layer) c.moe.layers.insert(layer);
  return c;
}

/// Parameters of products; `experts`: how many of a layer take part.
double matrix_parameters(const ModelConfig& c, double experts = 0) {
  const auto q = static_cast<double>((c.is_hybrid ? 2 : 1) * c.num_heads * c.head_dim),
             o = static_cast<double>(c.num_heads * c.head_dim),
             kv = static_cast<double>(c.num_kv_heads * c.head_dim);
  const auto D = static_cast<double>(c.hidden_size);
  const DeltaShape delta = delta_shape(c.delta);
  const auto nets = static_cast<double>(c.delta.layers.size());
  const double feed_forward = c.moe.layers.empty()
                                  ? 3 * D * static_cast<double>(c.intermediate_size)
                                  : D * static_cast<double>(c.moe.num_experts) +
                                        experts * 3 * D * static_cast<double>(c.moe.expert_size);
  return static_cast<double>(c.num_attention_layers()) * (D * (q + 2 * kv) + o * D) +
         nets * D * static_cast<double>(delta.projected_width() + delta.value_width()) +
         static_cast<double>(c.num_layers) * feed_forward + static_cast<double>(c.vocab_size) * D;
}

/// What a step reads of a sequence's gated delta nets: the high halves of states, and of keys and writes the
/// 32 rows that a chunk has on average; every 64th token a state is read and written whole.
double state_bytes(const ModelConfig& c) {
  const DeltaShape s = delta_shape(c.delta);
  const auto state = static_cast<double>(s.value_width() * s.key_dim);
  return static_cast<double>(c.delta.layers.size()) *
         (2 * state + 2 * 32 * static_cast<double>(s.key_width() + s.value_width()) + 6 * state / 64);
}

void bench_forward(const Bench& b, const Model& model) {
  constexpr int64_t kTokens = 4096;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  Trajectory t;
  t.prompt_tokens = {1};
  t.response.tokens = random_ids(kTokens, 150000, 3);
  const Trajectory* all = &t;
  const Microbatch mb = pack({&all, 1}, std::vector<int32_t>{0});
  const double s = seconds(c.lane, 10, [&] {
    ArenaScope scope(c.scratch);
    const Tensor hidden = target_hidden(c, model, mb, nullptr);
    (void)model.head().forward(c, hidden, to_device(c, view_of(mb.targets.data(), {hidden.dim(0)})), 1.0);
  });
  const double flops = 2 * matrix_parameters(b.config) * kTokens +
                       2.0 *
                           static_cast<double>(b.config.num_layers * b.config.num_heads * b.config.head_dim) *
                           kTokens * kTokens;
  std::printf("| scoring forward %s, 4,096 tokens | %.1f ms | %.0f TFLOP/s | %.0f tok/s |\n", b.name, s * 1e3,
              flops / s * 1e-12, kTokens / s);
}

/// Milliseconds of `count` calls, by events.
double milliseconds(Lane& lane, int count, const std::function<void()>& run) {
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  CUDA_CHECK(cudaEventRecord(start, stream_of(lane)));
  for (int i = 0; i < count; ++i) run();
  CUDA_CHECK(cudaEventRecord(end, stream_of(lane)));
  CUDA_CHECK(cudaEventSynchronize(end));
  float ms = 0;
  CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(end));
  return static_cast<double>(ms);
}

/// Rates of calls of `flops` operations: bursts (the median of nine of four calls each, behind a pause) and
/// sustained (the second half of a second without one). Returns TFLOP/s in bursts.
double print_rates(Lane& lane, const std::string& name, double flops, const std::function<void()>& run) {
  constexpr int kCalls = 4;
  std::vector<double> bursts(9);
  milliseconds(lane, kCalls, run);
  for (double& burst : bursts) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    burst = milliseconds(lane, kCalls, run) / kCalls;
  }
  std::nth_element(bursts.begin(), bursts.begin() + 4, bursts.end());
  const int half = static_cast<int>(500 / bursts[4]);
  milliseconds(lane, half, run);
  const double sustained = milliseconds(lane, half, run) / half;
  std::printf("| %s | %.3f ms | burst %.0f TFLOP/s | sustained %.0f |\n", name.c_str(), bursts[4],
              flops / bursts[4] * 1e-9, flops / sustained * 1e-9);
  return flops / bursts[4] * 1e-9;
}

double bench_attention(const AttentionShape& shape, int64_t length) {
  constexpr int64_t kRows = 16384;
  const int64_t head_dim = shape.head_dim;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const Tensor qkv = c.scratch.make({kRows, shape.qkv_width()}, DType::bf16),
               out = c.scratch.make({kRows, shape.q_width()}, DType::bf16),
               lse = c.scratch.make({shape.q_heads, kRows}, DType::f32);
  NormalBlock().fill(c.device, qkv, 1, 0, 1);
  std::vector<int32_t> cu{0};
  while (cu.back() < kRows) cu.push_back(cu.back() + static_cast<int32_t>(length));
  const CTensor ends = to_device(c, view_of(cu.data(), {static_cast<int64_t>(cu.size())}));
  const double flops = 2.0 * static_cast<double>(kRows * length * shape.q_heads * head_dim);
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  const auto measure = [&](const char* who, const std::function<void()>& run) {
    return print_rates(c.lane,
                       fmt::format("attention forward d{}, {} tokens, {}/{} heads, {}", head_dim, length,
                                   shape.q_heads, shape.kv_heads, who),
                       flops, run);
  };
  const double ours =
      measure("temper", [&] { attention_varlen_forward(c, out, lse, qkv, ends, shape, scale); });
  const std::shared_ptr<Cudnn> cudnn = head_dim <= 128 ? Cudnn::open(c.lane) : nullptr;
  if (cudnn == nullptr) return ours;
  const CudnnAttention peer(cudnn, kRows / length, length, shape, scale);
  measure("cuDNN", [&] { peer.run(qkv.data, out.raw(), lse.raw()); });
  return ours;
}

double bench_attention_backward(const char* name, const AttentionShape& shape,
                                const std::vector<int64_t>& lengths) {
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  std::vector<int32_t> cu{0};
  double flops = 0;
  for (int64_t n : lengths) {
    cu.push_back(cu.back() + static_cast<int32_t>(n));
    flops += 5.0 * static_cast<double>(shape.q_width() * n * n);
  }
  const int64_t rows = cu.back();
  const Tensor qkv = c.scratch.make({rows, shape.qkv_width()}, DType::bf16), dqkv = c.scratch.like(qkv),
               out = c.scratch.make({rows, shape.q_width()}, DType::bf16), dout = c.scratch.like(out),
               lse = c.scratch.make({shape.q_heads, rows}, DType::f32);
  NormalBlock().fill(c.device, qkv, 1, 0, 1);
  NormalBlock().fill(c.device, dout, 1, 0, 2);
  const CTensor ends = to_device(c, view_of(cu.data(), {static_cast<int64_t>(cu.size())}));
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  attention_varlen_forward(c, out, lse, qkv, ends, shape, scale);
  return print_rates(c.lane,
                     fmt::format("attention backward d{}, {}, {}/{} heads", shape.head_dim, name,
                                 shape.q_heads, shape.kv_heads),
                     flops,
                     [&] { attention_varlen_backward(c, dqkv, dout, qkv, out, lse, ends, shape, scale); });
}
/// Heads of 256 and of 128 of the same width in turn.
void compare_wide_heads(const std::vector<int64_t>& ragged) {
  for (const int64_t length : {2048, 8192}) {
    const double narrow = bench_attention({32, 8, 128}, length);
    for (const int64_t kv_heads : {4, 2})
      std::printf("heads of 256 over %ld kv heads against 128, %ld tokens, forward: %.2f\n", kv_heads, length,
                  bench_attention({16, kv_heads, 256}, length) / narrow);
  }
  for (const auto& [name, lengths] : {std::pair<const char*, std::vector<int64_t>>{"8k x 1", {8192}},
                                      {"64 sequences of 200 to 700", ragged}}) {
    const double narrow = bench_attention_backward(name, {32, 8, 128}, lengths);
    for (const int64_t kv_heads : {4, 2})
      std::printf("heads of 256 over %ld kv heads against 128, %s, backward: %.2f\n", kv_heads, name,
                  bench_attention_backward(name, {16, kv_heads, 256}, lengths) / narrow);
  }
}
void bench_paged_attention(double read_rate, const AttentionShape& shape, int64_t batch, int64_t length) {
  constexpr int64_t kPage = 64, kLayers = 2;
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const int64_t per = length / kPage, pages = batch * per;
  const Tensor keys = c.scratch.make({kLayers, pages, shape.kv_width() * kPage}, DType::bf16),
               values = c.scratch.like(keys);
  NormalBlock().fill(c.device, keys, 1, 0, 1);
  NormalBlock().fill(c.device, values, 1, 0, 2);
  std::vector<int32_t> table, lengths(static_cast<size_t>(batch), static_cast<int32_t>(length)), cu{0};
  for (int64_t i = 0; i < pages; ++i) table.push_back(static_cast<int32_t>(i * 7919 % pages));
  for (int64_t i = 0; i < batch; ++i) cu.push_back(static_cast<int32_t>(i + 1));
  const PagedKv kv{keys, values, to_device(c, view_of(table.data(), {batch, per})),
                   to_device(c, view_of(lengths.data(), {batch})), kPage};
  const Tensor qkv = c.scratch.make({batch, shape.qkv_width()}, DType::bf16),
               out = c.scratch.make({batch, shape.q_width()}, DType::bf16);
  NormalBlock().fill(c.device, qkv, 1, 0, 3);
  const CTensor ends = to_device(c, view_of(cu.data(), {batch + 1}));
  constexpr int kCalls = 20;
  const double s = seconds(c.lane, 5,
                           [&] {
                             for (int i = 0; i < kCalls; ++i)
                               attention_paged(c, out, qkv, kv, i % kLayers, ends, shape, 0.088);
                           }) /
                   kCalls;
  const double bytes = 4.0 * static_cast<double>(batch * length * shape.kv_width());
  std::printf(
      "| paged decode attention, %ld/%ld heads of %ld, batch %ld, %ld tokens | %.1f us | %.0f GB/s | %.0f %% "
      "of the read rate |\n",
      shape.q_heads, shape.kv_heads, shape.head_dim, batch, length, s * 1e6, bytes / s * 1e-9,
      100 * bytes / s / read_rate);
}

/// Seconds of a whole generate call.
double generate_seconds(const Model& model, Engine& engine, Backend& gpu, int64_t batch, int64_t prompt,
                        int64_t tokens, std::vector<Response>* responses = nullptr) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < batch; ++i)
    requests.push_back({i, random_ids(prompt, 150000, static_cast<uint64_t>(i)), 1});
  GenerateOptions options;
  options.seed = 1;
  options.max_new_tokens = tokens;
  options.num_sampleable = model.config().vocab_size;
  gpu.ctx().lane.wait();
  const double start = now();
  if (responses != nullptr) responses->resize(static_cast<size_t>(batch));
  engine.generate(gpu.ctx(), requests, options, nullptr, [&](size_t index, std::vector<Response> made) {
    if (responses != nullptr) (*responses)[index] = std::move(made.front());
  });
  return now() - start;
}

constexpr int64_t kPrompt = 2048, kNew = 128, kFurther = 64;
EngineOptions engine_options(int64_t batch) {
  constexpr int64_t kPage = 64;
  return {
      .scheduler = {batch, 8192}, .page_tokens = kPage, .num_pages = batch * ((kPrompt + kNew + kFurther) / kPage + 2)};
}

/// How many experts of a layer a step of decoding reads, on average; 0: the model has none.
double experts_hit(const Model& model, int64_t batch) {
  const ModelConfig& c = model.config();
  if (c.moe.layers.empty()) return 0;
  constexpr int64_t kSteps = 8;
  Backend gpu(Device::cuda);
  EngineOptions options = engine_options(batch);
  options.routes = {static_cast<int64_t>(c.moe.layers.size()), c.moe.num_experts, c.moe.experts_per_token};
  Engine engine(model, options, gpu.ctx().lane);
  std::vector<Response> responses;
  generate_seconds(model, engine, gpu, batch, kPrompt, kSteps + 1, &responses);
  std::set<std::array<int64_t, 3>> hit;  // step, layer, expert
  std::vector<int32_t> ids(static_cast<size_t>(options.routes.row_ids()));
  for (const Response& one : responses)
    for (int64_t row = kPrompt; row < route_rows(one.routes); ++row) {
      read_route(one.routes, row, ids);
      for (size_t i = 0; i < ids.size(); ++i)
        hit.insert({row, static_cast<int64_t>(i) / options.routes.chosen, ids[i]});
    }
  return static_cast<double>(hit.size()) / static_cast<double>(kSteps * options.routes.layers);
}

/// Sampled log-probs of some responses that scoring has other bits of.
void score_again(const Model& model, const std::vector<Response>& responses) {
  constexpr size_t kMost = 4;
  std::vector<Trajectory> list;
  for (size_t i = 0; i < std::min(kMost, responses.size()); ++i) {
    Trajectory& t = list.emplace_back();
    t.prompt_tokens = random_ids(kPrompt, 150000, i);
    t.response = responses[i];
  }
  std::vector<const Trajectory*> all;
  std::vector<int32_t> order;
  for (const Trajectory& t : list) {
    order.push_back(static_cast<int32_t>(all.size()));
    all.push_back(&t);
  }
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  const Microbatch mb = pack(all, order);
  const Tensor hidden = target_hidden(c, model, mb, nullptr);
  const CTensor targets = to_device(c, view_of(mb.targets.data(), {hidden.dim(0)}));
  const std::vector<double> scored =
      to_host<double>(c, model.head().forward(c, hidden, targets, 1.0).logprob);
  int64_t differing = 0;
  for (size_t i = 0; i < scored.size(); ++i)
    differing +=
        scored[i] !=
        list[static_cast<size_t>(mb.sequence[i])].response.logprobs[static_cast<size_t>(mb.offset[i])];
  std::printf("%ld of %zu log-probs differ from scoring\n", differing, scored.size());
}

struct GpuMemory {
  size_t free = 0, total = 0;
  double used_gib() const { return static_cast<double>(total - free) / 1073741824.0; }
};
GpuMemory gpu_memory() {
  GpuMemory memory;
  CUDA_CHECK(cudaMemGetInfo(&memory.free, &memory.total));
  return memory;
}

void bench_decode(const Bench& b, const Model& model, double read_rate, int64_t batch) {
  const double hit = experts_hit(model, batch);
  Backend gpu(Device::cuda);
  Engine engine(model, engine_options(batch), gpu.ctx().lane);
  generate_seconds(model, engine, gpu, batch, kPrompt, kNew + kFurther);  // products and steps are chosen
  std::vector<Response> responses;
  // All sequences decode when the first has kNew tokens: what further ones take is decoding alone.
  const double whole = generate_seconds(model, engine, gpu, batch, kPrompt, kNew, &responses),
               longer = generate_seconds(model, engine, gpu, batch, kPrompt, kNew + kFurther);
  const double step = (longer - whole) / kFurther;
  const ModelConfig& c = b.config;
  const double kv = 4.0 * static_cast<double>(c.num_attention_layers() * c.num_kv_heads * c.head_dim) *
                    static_cast<double>(batch) * (kPrompt + kNew + kFurther / 2.0);
  const double bytes = 2 * matrix_parameters(c, hit) + kv + static_cast<double>(batch) * state_bytes(c);
  std::printf(
      "| decode %s, batch %ld | %.2f ms a step | %.0f tok/s | %.0f %% of %.2f ms | whole call %.2f s, %.0f "
      "tok/s |\n",
      b.name, batch, step * 1e3, static_cast<double>(batch) / step, 100 * bytes / read_rate / step,
      bytes / read_rate * 1e3, whole, static_cast<double>(batch * kNew) / whole);
  if (hit == 0 && !c.is_hybrid) return;
  std::printf("%.1f experts of a layer hit, cache %.2f GiB, in use %.2f GiB\n", hit,
              static_cast<double>(engine.cache_bytes()) / 1073741824.0, gpu_memory().used_gib());
  score_again(model, responses);
}

/// What decoding costs while prompts are prefilled: GPU time by kernel of kNew tokens less that of one.
void bench_mixed_steps(const Bench& b, int64_t batch) {
  const auto model = random_model(b.config);
  Backend gpu(Device::cuda);
  Engine engine(*model, engine_options(batch), gpu.ctx().lane);
  const auto timed = [&](int64_t tokens) {
    generate_seconds(*model, engine, gpu, batch, kPrompt, tokens);
    KernelTimes times;
    const double seconds = generate_seconds(*model, engine, gpu, batch, kPrompt, tokens);
    std::printf("%s, batch %ld, %ld tokens: %.2f s\n", b.name, batch, tokens, seconds);
    return times.of(gpu.ctx().lane);
  };
  const KernelTimes::ByName one = timed(1);
  KernelTimes::ByName more = timed(kNew);
  for (const auto& [name, time] : one) {
    more[name].milliseconds -= time.milliseconds;
    more[name].calls -= time.calls;
  }
  constexpr size_t kMost = 20;
  print_longest(more, kMost);
}

/// The whole shape decodes in batches whose cache fits.
void bench_whole(const Bench& b, double read_rate) {
  const auto model = random_model(b.config);
  std::printf("%s: %.2f GiB in use with weights\n", b.name, gpu_memory().used_gib());
  for (const int64_t batch : {1, 64, 256}) {
    const EngineOptions options = engine_options(batch);
    const int64_t bytes = options.num_pages * KvShape(*model).page_bytes(options.page_tokens) +
                          batch * StateShape(*model).sequence_bytes();
    if (static_cast<size_t>(bytes) + (size_t{3} << 30) < gpu_memory().free)
      bench_decode(b, *model, read_rate, batch);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  if (device::find_gpus().gpus.empty()) return 1;
  device::select_gpu(0);
  const auto wanted = [&](const std::string& what) {
    bool all = argc == 1;
    for (int i = 1; i < argc; ++i) all = all || argv[i] == what;
    return all;
  };
  const double rate = read_rate();
  std::printf("%s, reads %.0f GB/s\n\n", device::gpu_name().c_str(), rate * 1e-9);
  if (wanted("attention")) {
    for (int64_t length : {2048, 8192}) bench_attention({32, 8, 128}, length);
    bench_attention({32, 8, 64}, 8192);
    std::vector<int64_t> ragged;
    for (int64_t i = 0; i < 64; ++i) ragged.push_back(200 + i * 331 % 501);
    bench_attention_backward("8k x 1", {32, 8, 128}, {8192});
    bench_attention_backward("8k x 2", {32, 8, 64}, {8192, 8192});
    bench_attention_backward("64 sequences of 200 to 700", {32, 8, 128}, ragged);
    for (const auto& [batch, length] :
         {std::pair<int64_t, int64_t>{1, 2048}, {1, 8192}, {64, 2048}, {64, 8192}})
      for (const AttentionShape& shape : {AttentionShape{32, 8, 128}, {16, 4, 256}, {16, 2, 256}})
        bench_paged_attention(rate, shape, batch, length);
    compare_wide_heads(ragged);
  }
  const ModelConfig small = qwen3(1024, 3072, 28, 16), large = qwen3(4096, 12288, 36, 32);
  for (const Bench& b : {Bench{"0.6B", small}, Bench{"8B", large},
                         Bench{"8B with adapters of rank 32", with_adapters(large)}}) {
    if (!wanted("forward") && !wanted("decode")) continue;
    const auto model = random_model(b.config);
    if (wanted("forward")) bench_forward(b, *model);
    if (wanted("decode"))
      for (int64_t batch : {1, 64}) bench_decode(b, *model, rate, batch);
  }
  if (wanted("experts")) bench_whole({"30B-A3B", qwen3_30b_a3b()}, rate);
  if (wanted("mixed")) bench_mixed_steps({"3.5-9B of 8 layers", qwen3_5_9b(8, 40960)}, 256);
  if (wanted("hybrid")) bench_whole({"3.5-9B", qwen3_5_9b(32, 40960)}, rate);
}

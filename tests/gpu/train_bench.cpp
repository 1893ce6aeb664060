// Whole updates on one GPU or, under mpirun, on one for each rank: 65,536 tokens a GPU, packed from sequences
// of 4,096, forward, backward, clip and AdamW, for shapes of Qwen3 and Qwen3.5 with random weights. TFLOP/s
// are those of a GPU as src/train/flops.h counts them, adapters and what is frozen aside.
// Moments are fp32, in bf16 where fp32 does not fit (8B); masters are remainders.
// usage: train_bench [NAME ...] [--tokens N] [--recompute none|selective|full]
//                    [--tp N] [--cp N] [--pp N] [--vpp N] [--ep N] [--zero N]   (the rest: data parallel)
//                    [--layers N] (of the shape's) [--updates N] (measured, after as many as half of them)
//                    [--lora RANK] (adapters of all linear layers are trained, nothing else)

#include <chrono>
#include <cstdio>
#include <cstring>

#include "src/comm/mesh.h"
#include "src/models/stages.h"
#include "src/nn/init.h"
#include "src/ops/backend.h"
#include "src/rl/registry.h"
#include "src/train/flops.h"
#include "src/train/trainer.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/gpu/hybrid/shapes.h"
#include "tests/support/all_adapters.h"
#include "tests/support/grid_shape.h"
#include "tests/support/normal_block.h"
#include "tests/support/random.h"

namespace temper {
namespace {

struct Shape {
  const char* name;
  int64_t hidden, ffn, layers, heads;
  bool tied;
  int64_t tokens;  // of a micro-batch
  const char* moments = "fp32";
  int64_t kv_heads = 8;
  MoeConfig experts = {};
  bool hybrid = false;
  int64_t lora_rank = 0;
};
const Shape kShapes[] = {
    {"0.6B", 1024, 3072, 28, 16, true, 16384},
    {"1.7B", 2048, 6144, 28, 16, true, 16384},
    {"8B", 4096, 12288, 36, 32, false, 8192, "bf16"},
    {"30B-A3B",
     2048,
     6144,
     48,
     32,
     false,
     16384,
     "bf16",
     4,
     {.num_experts = 128, .experts_per_token = 8, .expert_size = 768, .normalizes = true}},
    {"3.5-9B", 4096, 12288, 32, 16, false, 16384, "bf16", 4, {}, true}};
constexpr int64_t kSequence = 4096, kTokens = 65536;

ModelConfig config_of(const Shape& s) {
  if (s.hybrid) return qwen3_5_9b(s.layers, kSequence + 1);
  ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = 151936;
  c.hidden_size = s.hidden;
  c.intermediate_size = s.ffn;
  c.num_layers = s.layers;
  c.num_heads = s.heads;
  c.num_kv_heads = s.kv_heads;
  c.moe = s.experts;
  for (int64_t layer = 0; s.experts.num_experts > 0 && layer < s.layers; ++layer) c.moe.layers.insert(layer);
  c.head_dim = 128;
  c.max_position_embeddings = kSequence + 1;
  c.qk_norm = true;
  c.tie_word_embeddings = s.tied;
  c.rope.theta = 1e6;
  c.initializer_range = 0.02;
  if (s.lora_rank > 0) c.adapters = adapters_of_all(s.lora_rank);
  return c;
}

struct Layout {
  GridShape mesh;
  int vpp = 1, zero = 1;

  int ranks() const { return mesh.ranks(); }
  std::string text() const {
    if (ranks() == 1) return "";
    return fmt::format(", tp {} cp {} dp {} pp {} vpp {} ep {} zero {}", mesh.tp, mesh.cp, mesh.dp, mesh.pp,
                       vpp, std::max(1, mesh.ep), zero);
  }
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What is taken of the GPU's memory.
int64_t gpu_bytes() {
  const device::GpuMemory memory = device::gpu_memory();
  return memory.total - memory.free;
}

/// What the GPU waits for in a micro-batch: the packing, copies of log-probs, the loss of GRPO on the host,
/// copies of its gradient.
void bench_host_work(Ctx& c, Model& model, std::span<const Trajectory* const> all, int64_t tokens) {
  constexpr int kCalls = 20;
  AlgorithmConfig config;
  config.name = "grpo";
  const std::unique_ptr<Algorithm> algorithm = make_algorithm(config);
  const PolicyObjective objective(model, *algorithm, 1.0, kSequence);
  std::vector<int32_t> order;
  for (int32_t i = 0; i < tokens / kSequence; ++i) order.push_back(i);
  const Microbatch packed = pack(all, order);
  ObjectiveUpdate update = objective.begin(all);
  ArenaScope scope(c.scratch);
  const auto n = static_cast<int64_t>(packed.targets.size());
  const Tensor rows = c.scratch.make({n, model.config().hidden_size}, DType::bf16);
  NormalBlock().fill(c.device, rows, 1, 0, 1);
  const CTensor targets = to_device(c, view_of(packed.targets.data(), {n}));
  const TokenStats stats = model.head().forward(c, rows, targets, 1.0);
  c.lane.wait();
  double best = 1e9, sum = 0;
  for (int i = 0; i < kCalls; ++i) {
    ArenaScope one(c.scratch);
    const double start = now();
    Microbatch mb = objective.pack(update, order, /*losses=*/true);
    objective.loss_gradients(c, mb, update, stats);
    c.lane.wait();
    const double milliseconds = (now() - start) * 1e3;
    best = std::min(best, milliseconds);
    sum += milliseconds / kCalls;
  }
  std::printf("| host work of a micro-batch of %ld tokens | %.2f ms (best %.2f) |\n", tokens, sum, best);
}

ModelOptions options_of(const ModelConfig& config, const Layout& layout, Mesh& mesh) {
  ModelOptions options{DType::bf16, kSequence + 1, /*with_gradients=*/true, Device::cuda};
  if (layout.mesh.tp > 1) options.splits.tp = &mesh.tensors(Axis::tp);
  if (layout.mesh.cp > 1) options.splits.cp = &mesh.tensors(Axis::cp);
  if (layout.mesh.pp > 1)
    options.layers = parts_of_stages(balanced_stages(config, layout.mesh.pp * layout.vpp),
                                     layout.mesh.pp)[static_cast<size_t>(mesh.control(Axis::pp).rank())];
  if (layout.mesh.ep > 1) options.splits.ep = &mesh.tensors(Axis::ep);
  options.splits.ep_spans_batches = layout.mesh.ep > layout.mesh.tp * layout.mesh.cp;
  Collectives &replicas = mesh.tensors(kReplicas), &of_experts = mesh.tensors(Axis::edp);
  if (layout.zero > 1)
    options.unit_shards = {.rank = replicas.rank(),
                           .ranks = replicas.size(),
                           .of_values = layout.zero > 2,
                           .others = {{Axis::edp, {of_experts.rank(), of_experts.size()}}}};
  if (layout.zero > 2) options.splits.owners = &replicas, options.splits.expert_owners = &of_experts;
  return options;
}

void bench(const MpiSession& mpi, const Shape& shape, const Layout& layout, int64_t tokens,
           const char* recompute, int updates) {
  const ModelConfig config = config_of(shape);
  Backend gpu(Device::cuda);
  std::vector<int> ranks(static_cast<size_t>(layout.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  Mesh mesh(mpi, ranks, layout.mesh, Device::cuda, 600);
  Model model(config, options_of(config, layout, mesh));
  ThreadTeam team(16 / std::min(16, layout.ranks()));
  random_init(model.parameters(), config, 1, team);
  const std::unique_ptr<Comm> comm = mpi.make_comm_of_all(600);
  TrainerOptions options;
  options.pass.token_budget = tokens * layout.mesh.cp;
  options.optimizer.lr = 1e-6;
  options.optimizer.state = shape.moments;
  options.total_updates = 100;
  if (std::strcmp(recompute, "selective") == 0) options.recompute.granularity = Recompute::selective;
  if (std::strcmp(recompute, "full") == 0) options.recompute.granularity = Recompute::full;
  const Pipeline pipeline =
      layout.mesh.pp > 1 ? Pipeline(mesh.tensors(Axis::pp), mesh.control(Axis::pp)) : Pipeline();
  const SumRanks over(mesh);
  Trainer trainer(gpu.ctx(), model, *comm, mesh.control(Axis::dp), over, options, pipeline);
  const int64_t state = gpu_bytes();
  AlgorithmConfig algorithm_config;
  algorithm_config.name = "sft";
  const std::unique_ptr<Algorithm> algorithm = make_algorithm(algorithm_config);
  const PolicyObjective objective(model, *algorithm, 1.0, kSequence);
  std::vector<Trajectory> list;
  std::vector<const Trajectory*> all;
  for (int64_t i = 0; i < layout.ranks() * kTokens / kSequence; ++i) {
    Trajectory& t = list.emplace_back();
    t.prompt_tokens = random_ids(1, 150000, static_cast<uint64_t>(2 * i));
    t.response.tokens = random_ids(kSequence, 150000, static_cast<uint64_t>(2 * i + 1));
    t.response.mask.assign(t.response.tokens.size(), 1);
    t.advantage = i % 2 == 0 ? 1.0 : -1.0;  // a row without a gradient costs the head nothing
  }
  for (const Trajectory& t : list) all.push_back(&t);
  double best = 1e9, sum = 0;
  const int warm = (updates + 1) / 2;
  for (int i = 0; i < warm + updates; ++i) {
    comm->barrier("bench: before an update");
    const double start = now();
    const UpdateStats stats = trainer.update(gpu.ctx(), all, objective);
    const double seconds = now() - start;
    if (!stats.defect.empty()) std::printf("defect: %s\n", stats.defect.c_str());
    if (i < warm) continue;
    best = std::min(best, seconds);
    sum += seconds / updates;
  }
  if (mpi.rank() != 0) return;
  ModelConfig whole = config;
  whole.adapters = {};
  const double flops = training_flops(whole, all) / layout.ranks();
  std::printf(
      "| train %s%s, %ld layers, micro-batches of %ld, recompute %s%s | %.3f s | %.0f tok/s | %.0f TFLOP/s "
      "(best %.0f) | activations %.1f GB, scratch %.1f GB, state %.1f GB, GPU %.1f GB |\n",
      shape.name, shape.lora_rank > 0 ? fmt::format(", adapters of rank {}", shape.lora_rank).c_str() : "",
      shape.layers, tokens, recompute, layout.text().c_str(), sum, kTokens / sum, flops / sum * 1e-12,
      flops / best * 1e-12, static_cast<double>(trainer.activation_bytes()) * 1e-9,
      static_cast<double>(gpu.ctx().scratch.peak_bytes()) * 1e-9, static_cast<double>(state) * 1e-9,
      static_cast<double>(gpu_bytes()) * 1e-9);
  if (layout.ranks() == 1) bench_host_work(gpu.ctx(), model, all, tokens);
  std::fflush(stdout);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  if (!select_gpu_of_rank()) return 1;
  const MpiSession mpi(nullptr, nullptr);
  int64_t tokens = 0;
  const char* recompute = "none";
  Layout layout;
  int layers = 0, updates = 4, lora_rank = 0;
  const std::pair<const char*, int*> numbers[] = {
      {"--layers", &layers},     {"--updates", &updates},   {"--lora", &lora_rank},
      {"--tp", &layout.mesh.tp}, {"--cp", &layout.mesh.cp}, {"--pp", &layout.mesh.pp},
      {"--vpp", &layout.vpp},    {"--ep", &layout.mesh.ep}, {"--zero", &layout.zero}};
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const auto number = std::find_if(std::begin(numbers), std::end(numbers),
                                     [&](const auto& n) { return std::strcmp(argv[i], n.first) == 0; });
    if (number != std::end(numbers) && i + 1 < argc)
      *number->second = std::atoi(argv[++i]);
    else if (std::strcmp(argv[i], "--tokens") == 0 && i + 1 < argc)
      tokens = std::atoll(argv[++i]);
    else if (std::strcmp(argv[i], "--recompute") == 0 && i + 1 < argc)
      recompute = argv[++i];
    else
      names.emplace_back(argv[i]);
  }
  layout.mesh.dp = std::max(1, mpi.size() / std::max(1, layout.ranks()));
  if (layout.ranks() != mpi.size()) {
    std::fprintf(stderr, "%d ranks do not divide into models of %d\n", mpi.size(), layout.ranks());
    return 1;
  }
  for (Shape shape : kShapes) {
    if (layers > 0) shape.layers = layers;
    shape.lora_rank = lora_rank;
    if (names.empty() ? shape.hidden < 4096 && shape.experts.num_experts == 0
                      : std::find(names.begin(), names.end(), shape.name) != names.end())
      bench(mpi, shape, layout, tokens > 0 ? tokens : shape.tokens, recompute, updates);
  }
}

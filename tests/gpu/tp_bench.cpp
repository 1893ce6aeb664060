// What tensor parallelism adds to the kernels of a rank: updates of layers of the 8B shape (16,384 tokens in
// micro-batches of 8,192) by one rank, and by rank 0 of two whose other rank is a mirror: what it "sends" is
// what it was sent, copied on a stream of its own, so that neither staging nor links are counted. Kernel
// times by CUPTI. Added are copies within the GPU, fills and sums in rank order, beyond a half of what one
// rank has of them. usage: tp_bench [--layers N]

#include <cstring>

#include "src/comm/mpi_comm.h"
#include "src/nn/init.h"
#include "src/ops/backend.h"
#include "src/rl/registry.h"
#include "src/train/trainer.h"
#include "tests/gpu/kernel_times.h"
#include "tests/support/random.h"

namespace temper {
namespace {

constexpr int64_t kSequence = 4096, kTokens = 16384, kBudget = 8192;

ModelConfig config_of(int64_t layers) {
  ModelConfig c;
  c.family = "qwen3";
  c.vocab_size = 151936;
  c.hidden_size = 4096;
  c.intermediate_size = 12288;
  c.num_layers = layers;
  c.num_heads = 32;
  c.num_kv_heads = 8;
  c.head_dim = 128;
  c.max_position_embeddings = kSequence + 1;
  c.qk_norm = true;
  c.rope.theta = 1e6;
  c.initializer_range = 0.02;
  return c;
}

/// Rank 0 of two; parcels come back as they went, as far as they are as long.
class MirrorTransport : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  const char* carrier() const override { return "a mirror"; }
  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in, const char*) override {
    lane.wait();
    for (size_t i = 0; i < std::min(out.size(), in.size()); ++i)
      device::copy(mirror_, in[i].data, out[i].data, std::min(in[i].bytes, out[i].bytes));
    mirror_.wait();
    lane.order();
  }

 private:
  Lane mirror_{Device::cuda};
};

std::vector<Trajectory> trajectories() {
  std::vector<Trajectory> list;
  for (int64_t i = 0; i < kTokens / kSequence; ++i) {
    Trajectory& t = list.emplace_back();
    t.prompt_tokens = random_ids(1, 150000, static_cast<uint64_t>(2 * i));
    t.response.tokens = random_ids(kSequence, 150000, static_cast<uint64_t>(2 * i + 1));
    t.response.mask.assign(t.response.tokens.size(), 1);
    t.advantage = i % 2 == 0 ? 1.0 : -1.0;
  }
  return list;
}

KernelTimes::ByName times_of_update(const MpiSession& mpi, const ModelConfig& config, Collectives* tp) {
  Backend gpu(Device::cuda);
  ModelOptions of_model{DType::bf16, kSequence + 1, /*with_gradients=*/true, Device::cuda};
  of_model.splits.tp = tp;
  Model model(config, of_model);
  ThreadTeam team(16);
  random_init(model.parameters(), config, 1, team);
  const std::unique_ptr<Comm> comm = mpi.make_comm_of_all(600);
  const std::unique_ptr<Collectives> dp = mpi.make_collectives(0, 0, Device::cuda, "dp", 600);
  TrainerOptions options;
  options.pass.token_budget = kBudget;
  options.optimizer.lr = 1e-6;
  options.total_updates = 100;
  Trainer trainer(gpu.ctx(), model, *comm, *comm, *dp, options);
  AlgorithmConfig sft;
  sft.name = "sft";
  const std::unique_ptr<Algorithm> algorithm = make_algorithm(sft);
  const PolicyObjective objective(model, *algorithm, 1.0, kSequence);
  const std::vector<Trajectory> list = trajectories();
  std::vector<const Trajectory*> all;
  for (const Trajectory& t : list) all.push_back(&t);
  for (int i = 0; i < 2; ++i) trainer.update(gpu.ctx(), all, objective);  // sweeps, first touch of memory
  KernelTimes times;
  trainer.update(gpu.ctx(), all, objective);
  KernelTimes::ByName sum = times.of(gpu.ctx().lane);
  if (tp == nullptr) return sum;
  for (const auto& [name, time] : times.of(tp->beside(gpu.ctx()).lane)) {
    sum[name].milliseconds += time.milliseconds;
    sum[name].calls += time.calls;
  }
  return sum;
}

bool is_of_exchanges(const std::string& name) {
  return name == "copy within the GPU" || name == "fill" || name.find("sum_in_order") != std::string::npos ||
         name.find("copy_columns") != std::string::npos;
}

double milliseconds(const KernelTimes::ByName& times, bool of_exchanges) {
  double sum = 0;
  for (const auto& [name, time] : times)
    if (name != "copy from or to the host" && is_of_exchanges(name) == of_exchanges) sum += time.milliseconds;
  return sum;
}

void print(const char* title, const KernelTimes::ByName& times) {
  std::vector<std::pair<double, std::string>> longest;
  for (const auto& [name, time] : times)
    longest.push_back({time.milliseconds, fmt::format("{:>6} calls  {}", time.calls, name.substr(0, 90))});
  std::sort(longest.rbegin(), longest.rend());
  std::printf("%s\n", title);
  for (size_t i = 0; i < std::min<size_t>(longest.size(), 24); ++i)
    std::printf("  %9.3f ms %s\n", longest[i].first, longest[i].second.c_str());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  if (device::find_gpus().gpus.empty()) return 1;
  const MpiSession mpi(nullptr, nullptr);
  device::select_gpu(0);
  const int64_t layers = argc > 2 && std::strcmp(argv[1], "--layers") == 0 ? std::atoll(argv[2]) : 6;
  const ModelConfig config = config_of(layers);
  const KernelTimes::ByName one = times_of_update(mpi, config, nullptr);
  Collectives tp(std::make_unique<MirrorTransport>());
  const KernelTimes::ByName half = times_of_update(mpi, config, &tp);
  print("one rank", one);
  print("a rank of two", half);
  const double whole = milliseconds(one, false) + milliseconds(one, true),
               added = milliseconds(half, true) - milliseconds(one, true) / 2;
  std::printf(
      "| %ld layers of 8B, update of %ld tokens | one rank %.1f ms of kernels | a rank of tp 2 %.1f ms | of "
      "it "
      "copies, fills and sums that tp adds %.2f ms: %.2f %% of one rank's |\n",
      layers, kTokens, whole, milliseconds(half, false) + milliseconds(half, true), added,
      100 * added / whole);
}

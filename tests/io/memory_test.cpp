// What saves, loads, exports and imports hold besides the state itself: windows, whatever its size. Each runs
// in a child of its own, whose peak of resident memory starts at what the child has at its start.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/core/file.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_export.h"
#include "src/io/hf/hf_import.h"
#include "src/models/parameter_specs.h"
#include "tests/io/checkpoint_state.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLimitMiB = 80;

int64_t peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

/// MiB by which `work` raises the peak of this process; -1 when it fails.
template <class Work>
int64_t growth_mib(Work&& work) {
  int ends[2];
  CHECK(::pipe(ends) == 0, "no pipe");
  const pid_t child = ::fork();
  CHECK(child >= 0, "no child");
  if (child == 0) {
    int64_t growth = -1;
    try {
      const int64_t before = peak_mib();
      work();
      growth = peak_mib() - before;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    const bool told = ::write(ends[1], &growth, sizeof growth) == sizeof growth;
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t growth = -1;
  if (::read(ends[0], &growth, sizeof growth) != sizeof growth) growth = -1;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return growth;
}

void expect_windows(int64_t growth, const char* what) {
  EXPECT_GE(growth, 0) << what << " failed";
  EXPECT_LT(growth, kLimitMiB) << what;
}

class Memory : public OnRanks {};

TEST_F(Memory, AProbeThatHoldsTheStateAgainIsSeen) {
  EXPECT_GE(growth_mib([] { std::vector<char>(200 * kMiB, 'x').back() = 'y'; }), 190);
  EXPECT_LT(growth_mib([] {}), 8);
}

TEST_F(Memory, ACheckpointGoesThroughWindows) {
  const LogicalTensor whole{"param/whole", {25, kMiB}, DType::f32}, cut{"opt/m/cut", {25, kMiB}, DType::f32};
  const std::vector<Cut> cuts{
      {whole, {0, 25 * kMiB}}, {cut, {0, 3 * kMiB + 7}}, {cut, {3 * kMiB + 7, 25 * kMiB}}};
  RankState state(cuts);  // 200 MiB
  expect_windows(
      growth_mib([&] { save_checkpoint(folder_, 1, state.pieces(), checkpoint_meta(), *comm_).path; }),
      "save");
  const std::string path = join_path(folder_, "step-000001");
  expect_windows(growth_mib([&] { require_sound(path); }), "verify");
  expect_windows(growth_mib([&] { load_state(Manifest::read(path), state.pieces()); }), "load");
}

/// Random weights, their import and their export.
void expect_folder_in_windows(const std::string& folder, const char* text, int64_t least_mib) {
  write_file_atomic(join_path(folder, "config.json"), text);
  const std::string source = join_path(folder, "source"), out = join_path(folder, "out");
  expect_windows(growth_mib([&] {
                   init_model_folder(join_path(folder, "config.json"), source, parameter_specs,
                                     {.seed = 1, .threads = 2});
                 }),
                 "init");
  ModelFolder model = ModelFolder::open(source);
  const ModelConfig config = parse_model_config(model.config(), nullptr, model.config_path());
  model.match_names(config);
  ParameterStore store;
  for (const ParamSpec& spec : parameter_specs(config)) store.add(spec);
  store.allocate(DType::f32, /*with_gradients=*/false);
  ASSERT_GT(store.flat_values().bytes(), least_mib * kMiB);
  expect_windows(growth_mib([&] { import_weights(model, config, store); }), "import");
  expect_windows(
      growth_mib([&] { export_model(source, parameter_specs(config), store_reader(store), out, {"fp32"}); }),
      "export");
}

TEST_F(Memory, AModelFolderGoesThroughWindows) {
  expect_folder_in_windows(folder_, R"({"architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3", "vocab_size": 98304, "hidden_size": 512, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": true, "torch_dtype": "bfloat16"})",
                           190);
}

/// Many small tensors make a large parameter: 144 MiB of the gates and ups of a layer.
TEST_F(Memory, AFolderOfExpertsGoesThroughWindows) {
  expect_folder_in_windows(folder_, R"({"architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe", "vocab_size": 256, "hidden_size": 512, "intermediate_size": 64,
    "moe_intermediate_size": 576, "num_experts": 64, "num_experts_per_tok": 4, "norm_topk_prob": true,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": true, "torch_dtype": "bfloat16"})",
                           190);
}

/// Its largest tensor, 96 MiB as stored, has its rows by key heads.
TEST_F(Memory, AHybridFolderGoesThroughWindows) {
  expect_folder_in_windows(folder_, R"({"architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next", "vocab_size": 256, "hidden_size": 1024, "intermediate_size": 64,
    "num_experts": 0, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 1024, "linear_value_head_dim": 256,
    "linear_conv_kernel_dim": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": true, "torch_dtype": "bfloat16"})",
                           200);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }

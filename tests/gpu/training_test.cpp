// Whole runs on a GPU, through the program: rollout and trainer agree to the bit in every step, two runs are
// equal, and nothing of how a run is cut shows: recomputation, preemption, chunks, ranks that share the GPU
// by way of host memory, a stop and a resume. Gradients beside those of the CPU in fp64.

#include "tests/gpu/gpu_runs.h"
#include "tests/support/golden_case.h"
#include "tests/support/score_check.h"

namespace temper {
namespace {

/// The KL and entropy terms give gradients although a random model never earns a reward. A small cache and
/// small chunks: sequences are preempted, prompts come in parts.
const char* kConfig = R"(
run.name = "whole"
run.steps = 6
run.device = "cuda"
algorithm.kl_coef = 0.1
algorithm.entropy_coef = 0.01
rollout.prompts_per_step = 6
rollout.samples_per_prompt = 4
rollout.max_new_tokens = 40
rollout.prefill_chunk_tokens = 16
rollout.max_running_sequences = 16
train.samples_per_update = 12
train.max_tokens_per_microbatch = 300
model.context_tokens = 200
optimizer.schedule = "cosine"
checkpoint.every = 1
checkpoint.keep = 20
checkpoint.export_hf_every = 6
)";
/// Gated delta nets beside attention, of sizes that the kernels on tensor cores take.
constexpr const char* kHybrid = R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
  "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "full_attention_interval": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 4,
  "linear_num_value_heads": 8, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
  "linear_conv_kernel_dim": 4, "vocab_size": 6400, "max_position_embeddings": 512,
  "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "initializer_range": 0.1, "eos_token_id": 2,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}})";

constexpr int kSteps = 6;
const char* kOffload = "train.offload.optimizer=true roles.reference.offload=true";

class GpuTraining : public RunFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    program_.write("run.toml", run_config(kConfig));
    program_.write("data.jsonl", sums(29));
    ASSERT_EQ(program_.init_model("model", GetParam()), 0) << output();
  }
  void train(const std::string& name, const std::string& more = "", int ranks = 1) const {
    const std::string arguments = fmt::format("train run.toml run.name={} {}", name, more);
    const int code = ranks == 1 ? program_.run(arguments) : program_.run_ranks(ranks, arguments);
    ASSERT_EQ(code, 0) << output();
  }
  std::string weights(const std::string& name) const { return exported_weights(name, kSteps); }
  /// Without the counters of the engine, which tell of the cache.
  std::string results(const std::string& name) const {
    std::string kept;
    for (const Json& line : program_.metrics(name))
      for (const auto& [key, value] : line.items())
        if (!key.starts_with("timing_s/") && !key.starts_with("perf/") && !key.starts_with("rollout/"))
          kept += key + "=" + value.dump() + "\n";
    return kept;
  }
  void expect_equal(const std::string& a, const std::string& b) const {
    EXPECT_EQ(results(a), results(b)) << a << ", " << b;
    EXPECT_TRUE(weights(a) == weights(b)) << "weights of " << a << ", " << b;
    for (int step = 1; step <= kSteps; ++step)
      EXPECT_TRUE(rollouts(a, step) == rollouts(b, step)) << a << ", " << b << ", step " << step;
  }
  double sum_of(const std::string& run, const char* key) const {
    double sum = 0;
    for (const Json& line : program_.metrics(run)) sum += line.value(key, 0.0);
    return sum;
  }
};

TEST_P(GpuTraining, OnPolicyToTheBitHoweverItIsCut) {
  train("whole");
  for (const Json& line : program_.metrics("whole")) {
    EXPECT_EQ(line.at("actor/rollout_logprob_diff_max"), 0.0) << line.dump();
    EXPECT_GT(line.at("actor/grad_norm"), 0.0);
  }
  train("again");
  expect_equal("whole", "again");
  const std::string page_bytes = GetParam() == kTinyQwen3     ? "122880"
                                 : GetParam() == kTensorCores ? "737280"
                                                              : "1966080";  // of 30 pages
  train("preempted", "rollout.kv_memory=" + page_bytes);
  EXPECT_GT(sum_of("preempted", "rollout/preemptions"), 0);
  expect_equal("whole", "preempted");
  train("selective", "train.recompute.granularity=selective");
  expect_equal("whole", "selective");
  train("full", "train.recompute.granularity=full train.recompute.num_layers=2");
  expect_equal("whole", "full");
  train("offloaded", kOffload);
  expect_equal("whole", "offloaded");
  train("offloaded_fp32", std::string(kOffload) + " optimizer.master=fp32");
  expect_equal("whole", "offloaded_fp32");
}

TEST_P(GpuTraining, RanksThatShareTheGpu) {
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);  // one for all of them, whatever the machine has
  ASSERT_EQ(program_.run_ranks(2, "train run.toml run.name=refused"), 64);
  EXPECT_TRUE(says("cluster.shared_gpus")) << output();
  EXPECT_FALSE(exists("runs/refused/metrics.jsonl"));
  const std::string share = "cluster.shared_gpus=allow ";
  train("whole");
  train("apart", share + R"(roles.rollout.ranks='"0"' roles.reference.ranks='"0"' roles.trainer.ranks='"1"')",
        2);
  expect_equal("whole", "apart");
  train("three", share + R"(roles.rollout.ranks='"0"' roles.reference.ranks='"1"' roles.trainer.ranks='"2"')",
        3);
  expect_equal("whole", "three");
  train("two", share, 2);  // two trainers sum gradients in another order
  train("two_again", share, 2);
  expect_equal("two", "two_again");
  EXPECT_TRUE(rollouts("two", 1) == rollouts("whole", 1));
  EXPECT_EQ(sum_of("two", "actor/rollout_logprob_diff_max"), 0);
}

/// Shares of heads and vocabulary, stages of layers, and what generates shared in another way.
TEST_P(GpuTraining, RanksThatShareTheModel) {
  struct Layout {
    const char* name;
    int ranks;
    const char* roles;
  };
  const Layout layouts[] = {{"tp2", 2, "roles.trainer.tp=2"},
                            {"tp4", 4, "roles.trainer.tp=4"},
                            {"pp2", 2, "roles.trainer.pp=2"},
                            {"cp2", 2, "roles.trainer.cp=2"},
                            {"dp2zero3", 2, "roles.trainer.zero=3"},
                            {"rolloutpp2", 2, "roles.trainer.tp=2 roles.rollout.tp=1 roles.rollout.pp=2"},
                            {"tp2pp2", 4, "roles.trainer.tp=2 roles.trainer.pp=2 roles.rollout.tp=4"}};
  const auto train_on = [&](const Layout& l, const std::string& name, const std::string& more = "") {
    train(name, fmt::format("cluster.shared_gpus=allow {} {}", l.roles, more), l.ranks);
  };
  // Norms are those of the first step: later ones have other rollouts. Layouts sum gradients in other orders.
  // These models are random ones of large weights, whose gradients bf16 keeps to some percent, fp32 to some
  // hundredths of one.
  const double bf16 = GetParam() == kHybrid ? 0.05 : 0.02, fp32 = 3e-4;
  const auto expect_norm = [&](const std::string& of, const std::string& one, double tolerance) {
    const auto norm = [&](const std::string& run) {
      return program_.metrics(run).at(0).at("actor/grad_norm").get<double>();
    };
    EXPECT_NEAR(norm(of), norm(one), tolerance * norm(one)) << of;
  };
  const std::string in_fp32 = "run.dtype=fp32 run.steps=1";
  train("whole");
  train("whole_fp32", in_fp32);
  for (const Layout& l : layouts) {
    train_on(l, l.name);
    EXPECT_TRUE(rollouts(l.name, 1) == rollouts("whole", 1)) << l.name;
    EXPECT_EQ(sum_of(l.name, "actor/rollout_logprob_diff_max"), 0) << l.name;
    expect_norm(l.name, "whole", bf16);
    const std::string name_fp32 = std::string(l.name) + "_fp32";
    train_on(l, name_fp32, in_fp32);
    EXPECT_TRUE(rollouts(name_fp32, 1) == rollouts("whole_fp32", 1)) << l.name;
    expect_norm(name_fp32, "whole_fp32", fp32);
  }
  for (const Layout& l : {layouts[0], layouts[5]}) {
    train_on(l, "again");
    expect_equal(l.name, "again");
    std::filesystem::remove_all(program_.path("runs/again"));
    copy_until(l.name, "from3", 3, kSteps);
    train_on(l, "from3");
    expect_equal(l.name, "from3");
    std::filesystem::remove_all(program_.path("runs/from3"));
  }
}

TEST_P(GpuTraining, GoesOnBitForBit) {
  train("whole");
  for (int step : {1, 3, 5}) {
    const std::string name = "from" + std::to_string(step);
    copy_until("whole", name, step, kSteps);
    train(name, step == 3 ? kOffload : "");
    expect_equal("whole", name);
  }
  // On the CPU in the same type, and back: the state is the same, what follows agrees within tolerance.
  copy_until("whole", "moved", 2, kSteps);
  ASSERT_EQ(program_.run("train run.toml run.name=moved run.steps=4 run.device=cpu run.dtype=bf16"), 0)
      << output();
  train("moved");
  EXPECT_EQ(program_.metrics("moved").size(), static_cast<size_t>(kSteps));
}

TEST_P(GpuTraining, LagKeepsItsPromise) {
  const std::string behind = "run.max_policy_lag=1 rollout.tokens_per_step=16 checkpoint.export_hf_every=1";
  train("lag", behind);
  train("lag_again", behind);
  expect_equal("lag", "lag_again");
  EXPECT_GT(expect_score_agrees(program_, "lag", kSteps, "model", "--device cuda --dtype bf16"), 0);
}

/// A row of its own, within the time of the host's rows of the step, and no bit of the run is another.
TEST_P(GpuTraining, TheTimelineShowsTheGpu) {
  train("whole");
  train("traced", "profile.steps=2-3");
  expect_equal("whole", "traced");
  for (const int step : {2, 3}) {
    const std::string file = fmt::format("runs/traced/trace/step-{:06d}.json", step);
    double first = 1e18, last = 0, before = 0;  // microseconds
    std::map<std::string, int> kinds;
    std::vector<Json> gpu;
    const Json timeline = parse_json(program_.read(file), file);
    for (const Json& event : timeline.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      if (event.at("cat") == "GPU") {
        gpu.push_back(event);
        continue;
      }
      first = std::min(first, event.at("ts").get<double>());
      last = std::max(last, event.at("ts").get<double>() + event.at("dur").get<double>());
    }
    for (const Json& event : gpu) {
      const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
      const std::string name = event.at("name");
      ++kinds[name.substr(0, name.find_first_of(", "))];
      constexpr double kClocks = 1000;  // they are read one after the other
      EXPECT_GE(begin, std::max(first, before) - kClocks) << event.dump();
      EXPECT_LE(end, last + kClocks) << event.dump();
      before = begin;
    }
    for (const char* kind : {"prefill", "decode", "forward", "micro-batch", "optimizer"})
      EXPECT_GT(kinds[kind], 0) << kind << ", step " << step;
  }
}

/// Relative distance of all gradients of a dump to those of another.
double distance(const std::string& got, const std::string& want) {
  const GoldenFile a(got), b(want);
  double difference = 0, norm = 0;
  const SafetensorsFile header(want, want);
  for (const auto& [name, info] : header.tensors()) {
    const std::vector<double> x = a.numbers(name), y = b.numbers(name);
    for (size_t i = 0; i < y.size(); ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      norm += y[i] * y[i];
    }
  }
  return std::sqrt(difference / norm);
}

TEST_P(GpuTraining, GradientsAreThoseOfTheCpu) {
  train("whole", "run.steps=1 checkpoint.export_hf_every=0");
  const std::string replay = "--replay " + rollout_file("whole", 1);
  const auto dump = [&](const std::string& name, const std::string& keys) {
    ASSERT_EQ(program_.run(fmt::format("train run.toml run.name={0} run.steps=1 {1} {2} --dump-gradients {0}",
                                       name, keys, replay)),
              0)
        << output();
  };
  dump("exact", "run.device=cpu run.dtype=fp64");
  dump("cpu", "run.device=cpu run.dtype=bf16");
  dump("cpu32", "run.device=cpu run.dtype=fp32");
  dump("gpu", "run.device=cuda run.dtype=bf16");
  dump("gpu32", "run.device=cuda run.dtype=fp32");
  const auto file = [&](const std::string& name) {
    return program_.path(name + "/update-000001.safetensors");
  };
  const auto beside = [&](const char* type, const std::string& cpu_dump, const std::string& gpu_dump,
                          double factor) {
    const double cpu = distance(file(cpu_dump), file("exact")), gpu = distance(file(gpu_dump), file("exact"));
    std::printf("%s gradients to fp64, relative: CPU %.3e, GPU %.3e\n", type, cpu, gpu);
    EXPECT_LT(gpu, factor * cpu) << type;
  };
  beside("bf16", "cpu", "gpu", 1.1);
  beside("fp32", "cpu32", "gpu32", 4);  // one chain there, sixteen lanes here
}

constexpr const char* kNames[] = {"heads_of_16", "heads_of_64", "hybrid"};
INSTANTIATE_TEST_SUITE_P(Models, GpuTraining, ::testing::Values(kTinyQwen3, kTensorCores, kHybrid),
                         [](const auto& test) { return kNames[test.index]; });

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

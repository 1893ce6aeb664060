// A published model (tests/golden/tinyzero: one layer of TinyZero, bf16, made by tools/golden/golden_tinyzero.py)
// through the program: log-probs as transformers gives them; after a GRPO step with a learning rate of 0 on
// two ranks the checkpoint exports to the same bytes.

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace temper {
namespace {

constexpr double kLogprobTolerance = 2e-5;
const std::string kModel = std::filesystem::absolute("tests/golden/tinyzero").string();

TEST(TinyZero, ScoresAsTransformers) {
  const Program program;
  ASSERT_EQ(program.shell(fmt::format("{0} score --model {1} --input {1}/scores.jsonl > scored.jsonl",
                                      program.temper(), kModel)),
            0)
      << program.output();
  std::filesystem::copy(kModel + "/scores.jsonl", program.path("expected.jsonl"));
  const std::vector<Json> scored = program.json_lines("scored.jsonl"),
                          expected = program.json_lines("expected.jsonl");
  ASSERT_EQ(scored.size(), expected.size());
  double worst = 0;
  size_t compared = 0;
  for (size_t line = 0; line < scored.size(); ++line) {
    const std::vector<double> found = scored[line].at("logprobs"), golden = expected[line].at("logprobs");
    ASSERT_EQ(found.size(), golden.size());
    for (size_t i = 0; i < found.size(); ++i, ++compared)
      worst = std::max(worst, std::abs(found[i] - golden[i]));
  }
  EXPECT_EQ(compared, 153u);
  EXPECT_LE(worst, kLogprobTolerance);
  std::printf("%zu log-probs, largest difference %.1e\n", compared, worst);
}

TEST(TinyZero, ComesOutByteForByte) {
  const Program program;
  program.write("sums.jsonl",
                "{\"prompt\":\"1+1=\",\"answer\":\"2\"}\n{\"prompt\":\"2+2=\",\"answer\":\"4\"}\n");
  program.write("run.toml", fmt::format(R"([run]
name = "run"
steps = 1
threads = 1
[model]
path = "{}"
[algorithm]
entropy_coef = 0.01
[rollout]
prompts_per_step = 2
samples_per_prompt = 2
max_new_tokens = 8
[optimizer]
lr = 0
[data]
train = "sums.jsonl"
chat = false
[reward]
functions = ["arithmetic"]
)",
                                        kModel));
  ASSERT_EQ(program.run_ranks(2, "train run.toml"), 0) << program.output();
  EXPECT_GT(program.metrics("run").at(0).at("actor/grad_norm"), 0);
  ASSERT_EQ(program.run("export --checkpoint runs/run --out out"), 0) << program.output();
  const std::string source = kModel + "/";
  for (const char* file :
       {"model.safetensors", "generation_config.json", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(read_file(source + file, 1 << 20) == program.read(std::string("out/") + file)) << file;
  const Json config = read_json_file(source + "config.json"),
             exported = parse_json(program.read("out/config.json"), "out");
  for (const auto& [key, value] : config.items()) EXPECT_EQ(exported.value(key, Json()), value) << key;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

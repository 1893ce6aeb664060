// verify-bits on two ranks: pairs of layouts as they are written, the same bits in all of them, and what it
// says and returns where one bit of one rank's weights flips between rollout and trainer.

#include <algorithm>
#include <filesystem>

#include "src/core/file.h"
#include "src/io/hf/hf_export.h"
#include "src/models/parameter_specs.h"
#include "src/run/verbs/bits/verify_bits_command.h"
#include "tests/support/expect_error.h"
#include "tests/support/program.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

class VerifyBits : public OnRanks {
 protected:
  VerifyBits() {
    if (comm_->rank() == 0) {
      write_file_atomic(folder_ + "/model.json", kTinyQwen3);
      init_model_folder(folder_ + "/model.json", folder_ + "/model", parameter_specs,
                        {.seed = 1, .dtype = "fp32", .tokenizer_folder = "tests/golden/tokenizer/minimind"});
    }
    comm_->barrier("test: the model is there");
  }

  BitsModel model() const { return {.folder = folder_ + "/model", .device = "cpu", .dtype = "fp32"}; }
  /// The largest magnitude of one weight's mantissa flips on this rank.
  static void flip_a_bit(Model& model) {
    const Tensor weights = model.parameters().flat_values();
    weights.as<uint32_t>()[weights.size() / 2] ^= uint32_t{1} << 22;
  }
  BitsFound check(const std::string& layouts, int bad_rank) const {
    BitsPair pair(model(), parse_layout_pair(layouts), *test_world, *comm_, Device::cpu, kTestWaitLimit);
    pair.generate();
    if (comm_->rank() == bad_rank) flip_a_bit(pair.trained());
    return pair.compare();
  }
  /// The exit code, and on rank 0 what was printed.
  std::pair<int, std::string> tell(const std::vector<BitsFound>& found, bool json,
                                   const std::optional<ProductsCost>& cost = {}) const {
    ::testing::internal::CaptureStdout();
    const int code = tell_bits(model(), found, cost, *comm_, json);
    return {code, ::testing::internal::GetCapturedStdout()};
  }
};

TEST_F(VerifyBits, AFlippedBitIsFoundInEveryLayout) {
  std::vector<BitsFound> sound, broken;
  for (const char* layouts : {"1:1", "tp2:pp2", "1:cp2"}) {
    sound.push_back(check(layouts, -1));
    broken.push_back(check(layouts, 1));
    EXPECT_GT(sound.back().tokens, 500) << layouts;
    EXPECT_EQ(sound.back().differing_bits, 0) << layouts;
    EXPECT_EQ(sound.back().max_difference, 0) << layouts;
    EXPECT_EQ(broken.back().tokens, sound.back().tokens) << layouts;
    EXPECT_GT(broken.back().differing_tokens, 0) << layouts;
    EXPECT_GE(broken.back().differing_bits, broken.back().differing_tokens) << layouts;
    EXPECT_GT(broken.back().max_difference, 0) << layouts;
  }
  EXPECT_EQ(tell(sound, true).first, 0);
  const auto [code, said] = tell({sound[0], broken[1]}, true);
  EXPECT_EQ(code, 79);
  EXPECT_EQ(tell(broken, false).first, 79);
  EXPECT_EQ(said.empty(), comm_->rank() != 0);
  if (said.empty()) return;
  const Json json = parse_json(said, "stdout");
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_TRUE(json.at("cost").is_null());
  ASSERT_EQ(json.at("pairs").size(), 2u);
  EXPECT_EQ(json.at("pairs")[0].at("differing_tokens"), 0);
  EXPECT_EQ(json.at("pairs")[1].at("layouts"), "tp2:pp2");
  EXPECT_EQ(json.at("pairs")[1].at("tokens"), broken[1].tokens);
  EXPECT_EQ(json.at("pairs")[1].at("differing_bits"), broken[1].differing_bits);
  EXPECT_EQ(json.at("pairs")[1].at("max_difference"), broken[1].max_difference);
}

/// As the option --allow-unused says it.
TEST_F(VerifyBits, AFolderMayHaveMoreThanTheModelTakes) {
  BitsModel more = model();
  more.folder = folder_ + "/more";
  if (comm_->rank() == 0) {
    std::filesystem::copy(model().folder, more.folder);
    Json index{{"weight_map", {{"visual.x", "extra.safetensors"}}}};
    const ModelFolder folder = ModelFolder::open(more.folder);
    for (const auto& [name, tensor] : folder.tensors())
      index["weight_map"][name] = tensor.file;
    write_file_atomic(more.folder + "/model.safetensors.index.json", index.dump());
    const std::string header = R"({"visual.x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const uint64_t size = header.size();
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
    write_file_atomic(more.folder + "/extra.safetensors", bytes + header + std::string(4, '\0'));
  }
  comm_->barrier("test: the folder is there");
  const auto load = [&] {
    BitsPair(more, parse_layout_pair("1:1"), *test_world, *comm_, Device::cpu, kTestWaitLimit);
  };
  expect_error(Exit::data, {"visual.x", "model.allow_unused"}, "another tensor", load);
  more.allow_unused = {"visual.*"};
  load();
}

/// Times of a GPU, made up: the sums count, not the mean of ratios.
TEST_F(VerifyBits, TheCostIsThatOfAllProductsTogether) {
  const LinearTimes slow{{2e-3, 1e-3}, {2e-3, 1e-3}, {2e-3, 1e-3}}, even{{9e-3, 9e-3}, {9e-3, 9e-3}, {0, 0}};
  const ProductsCost cost{{"attn.wo", 16, 32, slow, {1e-6, 2e-6}}, {"mlp.wd", 32, 64, even, {2e-6, 2e-6}}};
  const auto said = tell({BitsFound{.layouts = "1:1", .tokens = 9}}, true, cost).second;
  const std::string text = tell({BitsFound{.layouts = "1:1", .tokens = 9}}, false, cost).second;
  if (comm_->rank() != 0) return;
  const Json told = parse_json(said, "stdout").at("cost");
  EXPECT_DOUBLE_EQ(told.at("training").get<double>(), 24.0 / 21.0);
  EXPECT_DOUBLE_EQ(told.at("decoding").get<double>(), 3.0 / 4.0);
  ASSERT_EQ(told.at("products").size(), 8u);
  const Json& last = told.at("products")[7];
  EXPECT_EQ(last.at("weight"), "mlp.wd");
  EXPECT_EQ(last.at("product"), "forward");
  EXPECT_EQ(last.at("tokens"), 64);
  EXPECT_EQ(last.at("outputs"), 32);
  EXPECT_EQ(last.at("inputs"), 64);
  EXPECT_EQ(last.at("seconds").get<double>(), 2e-6);
  EXPECT_NE(text.find("1.14 times as long as the fastest of cuBLASLt in training (8,192 tokens), 0.75 times"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(", 2 ranks; "), std::string::npos) << text;
}

TEST(LayoutPairs, AsTheyAreWritten) {
  const LayoutPair pair = parse_layout_pair("tp4pp2:tp2cp2pp2vpp2zero3");
  EXPECT_EQ(pair.rollout.tp, 4);
  EXPECT_EQ(pair.rollout.pp, 2);
  EXPECT_EQ(pair.trainer.tp, 2);
  EXPECT_EQ(pair.trainer.cp, 2);
  EXPECT_EQ(pair.trainer.pp, 2);
  EXPECT_EQ(pair.trainer.vpp, 2);
  EXPECT_EQ(pair.trainer.zero, 3);
  EXPECT_EQ(parse_layout_pair("1:tp2").rollout.tp, 1);
  EXPECT_EQ(parse_layout_pairs({"1:1,tp2:1", "pp2:cp2"}).size(), 3u);
  const std::pair<const char*, const char*> wrong[] = {{"tp2", "colon"},
                                                       {"tp2:", "trainer is missing"},
                                                       {":tp2", "rollout is missing"},
                                                       {"cp2:1", "\"cp\""},
                                                       {"tp:1", "number"},
                                                       {"tp0:1", "from 1"},
                                                       {"1:tp2,", "colon"},
                                                       {"1:2", "\"\""},
                                                       {"dp2:1", "tp, pp"},
                                                       {"1:tp2 pp2", "\" pp\""},
                                                       {"tp99999999999:1", "number"}};
  for (const auto& [text, named] : wrong)
    expect_error(Exit::usage, {"--layouts", named, "tp2:pp2"}, text, [&] { parse_layout_pairs({text}); });
}

TEST(LayoutPairs, EachAxisAlongAsManyRanksAsItCanHave) {
  const auto texts = [](int ranks, int64_t most) {
    std::string all;
    for (const LayoutPair& pair : standard_pairs(ranks, [&](const LayoutPair& p) {
           return std::max({*p.rollout.tp, *p.rollout.pp, *p.trainer.tp, *p.trainer.pp}) <= most;
         }))
      all += pair.text + " ";
    return all;
  };
  EXPECT_EQ(texts(1, 8), "1:1 ");
  EXPECT_EQ(texts(4, 8), "1:1 tp4:1 1:tp4 tp4:pp4 pp4:cp4 ");
  EXPECT_EQ(texts(6, 4), "1:1 tp3:1 1:tp3 tp3:pp3 pp3:cp3 ");
  EXPECT_EQ(texts(5, 4), "1:1 ");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }

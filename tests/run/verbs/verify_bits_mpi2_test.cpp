// verify-bits on two ranks: pairs of layouts as they are written, the same bits in all of them, and what it
// says and returns where one bit of one rank's weights flips between rollout and trainer.

#include <algorithm>

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
      init_model_folder(folder_ + "/model.json", folder_ + "/model", 1, "fp32",
                        "tests/golden/tokenizer/minimind", parameter_specs, 1);
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
  std::pair<int, std::string> tell(const std::vector<BitsFound>& found, bool json) const {
    ::testing::internal::CaptureStdout();
    const int code = tell_bits(model(), found, *comm_, json);
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

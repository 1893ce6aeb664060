// Nothing of a token that goes through experts moves with what else is in the pass: its place, the order, how
// sequences are cut and how many rows there are, from 1 to 256; a hundred passes are one.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "src/core/digest/hash.h"
#include "src/models/layer_pass.h"
#include "src/ops/backend.h"
#include "tests/support/check_op.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

constexpr int32_t kMost = 256;

ModelConfig config_of(int64_t shared) {
  ModelConfig c = tiny_moe_config(shared);
  c.vocab_size = 400;
  return c;
}

/// The hidden state of each of these tokens, which are sequences of their own; as bytes.
std::vector<std::string> hidden_of(Ctx& c, const Model& model, const std::vector<int32_t>& tokens) {
  const ArenaScope scope(c.scratch);
  const int64_t n = std::ssize(tokens);
  const std::vector<int32_t> positions(tokens.size(), 0);
  std::vector<int32_t> borders(tokens.size() + 1);
  std::iota(borders.begin(), borders.end(), 0);
  const Tensor hidden = forward_pass(c, model,
                                     {.tokens = view_of(tokens.data(), {n}),
                                      .positions = view_of(positions.data(), {n}),
                                      .cu_seqlens = view_of(borders.data(), {n + 1})});
  const std::vector<char> bytes = bytes_of(c, hidden);
  std::vector<std::string> rows;
  const size_t width = bytes.size() / tokens.size();
  for (size_t t = 0; t < tokens.size(); ++t) rows.emplace_back(bytes.data() + t * width, width);
  return rows;
}

class MoeBits : public ::testing::TestWithParam<DType> {
 protected:
  Backend backend_{Device::cpu, 2};
};

TEST_P(MoeBits, DoNotMoveWithTheBatch) {
  for (const int64_t shared : {0, 24}) {
    const auto model = tiny_model_of(config_of(shared), GetParam());
    std::vector<int32_t> tokens(kMost);
    std::iota(tokens.begin(), tokens.end(), 0);
    const std::vector<std::string> want = hidden_of(backend_.ctx(), *model, tokens);
    std::mt19937 random(3);
    for (int32_t count = 1; count <= kMost; count += count < 40 ? 1 : 9) {
      std::shuffle(tokens.begin(), tokens.end(), random);
      const std::vector<int32_t> some(tokens.begin(), tokens.begin() + count);
      const std::vector<std::string> got = hidden_of(backend_.ctx(), *model, some);
      for (size_t t = 0; t < some.size(); ++t)
        ASSERT_TRUE(got[t] == want[static_cast<size_t>(some[t])]) << "token " << some[t] << " of " << count;
    }
  }
}

/// All of one token: all rows to the same experts.
TEST_P(MoeBits, DoNotMoveWhereAllGoToOneExpert) {
  const auto model = tiny_model_of(config_of(0), GetParam());
  const std::string want = hidden_of(backend_.ctx(), *model, {7}).front();
  for (const size_t count : {2u, 31u, 256u})
    for (const std::string& row : hidden_of(backend_.ctx(), *model, std::vector<int32_t>(count, 7)))
      ASSERT_TRUE(row == want) << count;
}

TEST_P(MoeBits, AHundredPassesAreOne) {
  const auto model = tiny_model_of(config_of(24), GetParam());
  std::set<std::string> digests;
  for (int pass = 0; pass < 100; ++pass) {
    std::string all;
    for (const std::string& row : hidden_of(backend_.ctx(), *model, random_ids(64, 400, 9))) all += row;
    digests.insert(digest_hex(all.data(), std::ssize(all)));
  }
  EXPECT_EQ(digests.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Types, MoeBits, ::testing::Values(DType::f32, DType::bf16, DType::f64),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// What the plan proposes where several ranks do not fit as they are (of one rank: plan_test.cpp).

#include <gtest/gtest.h>

#include "src/run/plan/memory.h"
#include "tests/config/config_text.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

/// Of layers enough that two of them, whose gradients are whole at once, are less than all.
ModelConfig deep_config() {
  ModelConfig config = tiny_config();
  config.num_layers = 8;
  return config;
}

/// The first error; empty where the limit holds.
std::string refusal(const std::vector<std::string>& keys, int ranks, int64_t limit) {
  const PlanResult result =
      try_plan(load_text(kMinimalConfig, keys).config, ranks, deep_config(), {{limit}, {}});
  return result.errors.empty() ? "" : result.errors[0].message;
}
int64_t peak(const std::vector<std::string>& keys, int ranks) {
  return peak_bytes(try_plan(load_text(kMinimalConfig, keys).config, ranks, deep_config()).plan);
}

/// Where other ranks can keep the rest, and do not yet.
TEST(MemoryLimit, ProposesShardsOfGradients) {
  const std::string sharded = "roles.trainer.zero=2", proposal = "; roles.trainer.zero = 2 needs ";
  const int64_t less = peak({sharded}, 4);
  ASSERT_LT(less, peak({}, 4));
  const auto proposed = [&](const std::string& message) {
    EXPECT_NE(message, "");
    return message.find(proposal) != std::string::npos;
  };
  EXPECT_NE(refusal({}, 4, less).find(proposal + gib_text(less)), std::string::npos) << refusal({}, 4, less);
  EXPECT_EQ(refusal({sharded}, 4, less), "");
  EXPECT_FALSE(proposed(refusal({}, 4, less - 1))) << "does not fit";
  EXPECT_FALSE(proposed(refusal({sharded}, 4, less - 1))) << "is so already";
  EXPECT_FALSE(proposed(refusal({}, 1, peak({}, 1) - 1))) << "there is one rank";
  EXPECT_FALSE(proposed(refusal({"roles.trainer.tp=2"}, 2, peak({"roles.trainer.tp=2"}, 2) - 1)));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// What the plan proposes where several ranks do not fit as they are (of one rank: plan_test.cpp), and parts
// of the memory that it counts.

#include <gtest/gtest.h>

#include "src/comm/gpu/neighbours.h"
#include "src/run/plan/memory/memory.h"
#include "tests/config/config_text.h"
#include "tests/run/small_model.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

/// It has layers enough that two of them, whose gradients are whole at once, are less than all.
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

/// Other ranks can keep the rest, and do not yet.
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

/// What exchanges take of the GPU of the last rank.
int64_t exchanges(const std::vector<std::string>& keys, int ranks) {
  std::vector<std::string> on_gpus{"run.device=cuda"};
  on_gpus.insert(on_gpus.end(), keys.begin(), keys.end());
  const RunPlan plan = try_plan(load_text(kMinimalConfig, on_gpus).config, ranks, deep_config()).plan;
  int64_t bytes = 0;
  for (const MemoryRow& row : plan.memory) {
    int64_t sum = 0;
    for (const auto& [name, size] : row.all_parts()) sum += size;
    EXPECT_EQ(sum, row.device_bytes + row.host_bytes);
    if (row.ranks.back() != ranks - 1) continue;
    for (const auto& [name, size] : row.all_parts())
      if (name == "exchanges") bytes = size;
  }
  const ExchangeMemory memory = exchange_memory(plan, ranks - 1);
  EXPECT_EQ(bytes, memory.joined + memory.connections);
  return bytes;
}
/// The bytes for so many other ranks of the host; over one axis, for so many of other hosts.
int64_t taken(int near, int far = 0) {
  return near * Inbox::kRankBytes + (far > 0 ? kExchangeKernels + kJoined + far * kFarPeer : 0);
}

TEST(ExchangeMemory, IsThatOfEachGridOfRanks) {
  const std::string tp = "roles.trainer.tp=2", whole = "roles.rollout.tp=1", pp = "roles.trainer.pp=4",
                    cp = "roles.trainer.cp=2";
  EXPECT_EQ(exchanges({}, 1), 0);
  EXPECT_EQ(exchanges({}, 2), taken(1));
  EXPECT_EQ(exchanges({tp}, 2), taken(1)) << "rollouts are in the trainer's grid";
  EXPECT_EQ(exchanges({tp, whole}, 2), taken(1));
  EXPECT_EQ(exchanges({"roles.rollout.tp=2"}, 2), taken(2)) << "each has a grid of its own";
  EXPECT_EQ(exchanges({tp}, 4), taken(2)) << "tp and dp";
  EXPECT_EQ(exchanges({pp}, 4), taken(3));
  EXPECT_EQ(exchanges({cp}, 4), taken(1 + 3)) << "cp, and with dp what gradients use";
  EXPECT_EQ(exchanges({tp}, 16), taken(1 + 3, 7)) << "dp goes to other hosts";
  EXPECT_EQ(exchanges({"roles.rollout.ranks='1'", "roles.trainer.ranks='0'"}, 2), 0);
}

/// 32 responses.
TEST(StepMemory, HasTheAdvantagesOfTokens) {
  const auto trajectories = [](std::vector<std::string> keys) {
    keys.push_back("rollout.max_new_tokens=64");
    const PlanResult result = try_plan(load_text(kMinimalConfig, keys).config, 1, small_model());
    EXPECT_TRUE(result.errors.empty()) << result.errors[0].key << ": " << result.errors[0].message;
    return MemoryRow::bytes_of(result.plan.memory.front().host, "trajectories");
  };
  constexpr int64_t kNumbers = 32 * 64 * 8;
  const std::string returns = "algorithm.name=reinforce++", kl = "algorithm.kl_coef=0.1";
  const int64_t alike = trajectories({});
  EXPECT_EQ(trajectories({returns}), alike);
  EXPECT_EQ(trajectories({returns, "algorithm.gamma=0.9"}), alike + kNumbers);
  EXPECT_EQ(trajectories({returns, kl}), trajectories({kl}) + kNumbers);
  EXPECT_EQ(trajectories({"roles.teacher.path=t"}), alike + 2 * kNumbers) << "log-probs of the teacher, too";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

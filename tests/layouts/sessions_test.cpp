// Sessions of two agents at once, whatever arrives when and however they are made: equal rollouts, of which
// each sampled token has the bits of `temper score` and is trained once; and their replay without programs.

#include "tests/agents/player.h"
#include "tests/agents/session_runs.h"
#include "tests/agents/talker.h"

namespace temper {
namespace {

/// A way to make the same rollouts.
struct Way {
  std::string name, words, more, harness;
  int ranks = 1;
};

const std::string kSmallCache = "rollout.kv_memory=128KiB rollout.max_running_sequences=6 ";

const std::vector<Way> kOneRank = {
    {"late", "--talk --jitter 10", "", ""},
    {"later", "--talk --jitter 60", "", ""},
    {"lost", "--talk --lose", "", ""},
    {"lost-late", "--talk --lose --jitter 30", "", ""},
    {"streams", "--talk --stream", "", ""},
    {"streams-lost", "--talk --stream --lose --jitter 20", "", ""},
    {"one", "--talk", "", "in_flight = 1"},
    {"two", "--talk --lose --stream", "", "in_flight = 2"},
    {"threads", "--talk --lose --jitter 10", "rollout.server.threads=3", ""},
    {"pages", "--talk", kSmallCache, ""},
    {"pages-late", "--talk --jitter 20", kSmallCache, ""},
    {"pages-lost", "--talk --lose --stream", kSmallCache + "rollout.kv_page_tokens=32", ""},
    {"narrow", "--talk --jitter 10", "rollout.max_running_sequences=2", ""},
    {"pieces", "--talk", "rollout.prefill_chunk_tokens=16", ""},
};
const std::vector<Way> kManyRanks = {
    {"tp2", "--talk --jitter 10", "roles.rollout.tp=2 roles.trainer.tp=2", "", 2},
    {"pp2", "--talk --lose", "roles.rollout.pp=2", "", 2},
    {"dp2", "--talk --lose --stream --jitter 20", "", "", 2},
    {"tp2pp2", "--talk --lose", "roles.rollout.tp=2 roles.rollout.pp=2", "", 4},
};

class SessionWays : public SessionRuns {
 protected:
  int run_way(const Way& way, const std::string& name, const std::string& more = "") const {
    return run(way.ranks, train(name, way.words, way.more + " " + more, way.harness));
  }
};

TEST_F(SessionWays, OrdersDelaysLossesAndPagesChangeNothing) {
  ASSERT_EQ(run(1, train("whole", "--talk")), 0) << output();
  expect_one_numerics("whole");
  for (const Way& way : kOneRank) {
    ASSERT_EQ(run_way(way, way.name), 0) << way.name << output();
    expect_same_rollouts("whole", way.name);
    EXPECT_TRUE(exported_weights("whole", kSteps) == exported_weights(way.name, kSteps)) << way.name;
  }
  double preemptions = 0;  // of all three: a run whose programs come late has few turns at once
  for (const char* name : {"pages", "pages-late", "pages-lost"})
    for (int64_t step = 1; step <= kSteps; ++step) preemptions += metric(name, step, "rollout/preemptions");
  EXPECT_GT(preemptions, 0);
  for (const Way& way : kManyRanks) {
    ASSERT_EQ(run_way(way, way.name), 0) << way.name << output();
    expect_one_numerics(way.name);
    // Gradients are summed in the order of the layout: what later weights sample is not the same.
    expect_same_rollouts("whole", way.name, 1);
    Way other = way;
    other.words = "--talk --jitter 40";
    ASSERT_EQ(run_way(other, way.name + "-again"), 0) << way.name << output();
    expect_same_rollouts(way.name, way.name + "-again");
  }
}

TEST_F(SessionWays, WorkersOfAServiceChangeNothing) {
  const std::string words = "--play service --turns 3 --jitter 20";
  ASSERT_EQ(run(1, train("whole", words, "", "kind = \"service\"")), 0) << output();
  for (const char* harness : {"workers = 2", "workers = 8", "workers = 3, in_flight = 1"}) {
    const std::string name = fmt::format("workers-{}", std::strlen(harness) + std::atoi(harness + 10));
    ASSERT_EQ(run(1, train(name, words, "", fmt::format("kind = \"service\", {}", harness))), 0) << output();
    expect_same_rollouts("whole", name);
  }
}

TEST_F(SessionWays, AStepAheadChangesNothing) {
  const std::string lag = "run.max_policy_lag=1 run.steps=4 ";
  ASSERT_EQ(run(1, train("ahead", "--talk", lag)), 0) << output();
  ASSERT_EQ(run(1, train("ahead-late", "--talk --lose --jitter 40", lag)), 0) << output();
  expect_same_rollouts("ahead", "ahead-late", 4);
  ASSERT_EQ(run(2, train("apart", "--talk", lag + R"(roles.rollout.ranks='"0"' roles.trainer.ranks='"1"')")),
            0)
      << output();
  expect_same_rollouts("ahead", "apart", 4);
}

/// All log-probs of tokens that are trained, against those of the weights that sampled them.
TEST_F(SessionWays, LogprobsAreTheBitsOfScore) {
  ASSERT_EQ(
      run(1, train("whole", "--talk --stream", "rollout.prompts_per_step=8 train.samples_per_update=24")), 0)
      << output();
  int64_t trained = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const std::vector<Json> lines = responses("whole", step);
    std::string input;
    for (const Json& line : lines) {
      std::vector<int32_t> ids = line["prompt_tokens"];
      for (const Json& id : line["response_tokens"]) ids.push_back(id);
      input += Json{{"tokens", ids}}.dump() + "\n";
    }
    program_.write("ids.jsonl", input);
    const std::string model = step == 1 ? "model" : "runs/whole/export/" + step_name(step - 1);
    ASSERT_EQ(program_.run("score --model " + model + " --input ids.jsonl > scores.jsonl"), 0) << output();
    const std::vector<Json> scores = program_.json_lines("scores.jsonl");
    ASSERT_EQ(scores.size(), lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      const Json& scored = scores[i]["logprobs"];
      const size_t before = scored.size() - lines[i]["response_tokens"].size();
      for (size_t t = 0; t < lines[i]["response_tokens"].size(); ++t) {
        if (lines[i]["response_mask"][t] == 0) continue;
        ++trained;
        ASSERT_EQ(lines[i]["logprobs"][t], scored[before + t]) << step << " " << i << " " << t;
      }
    }
  }
  EXPECT_GT(trained, 1000);
}

TEST_F(SessionWays, ReplayOnOtherRanksAsksNobody) {
  ASSERT_EQ(run(4, train("made", "--talk --lose",
                         "roles.rollout.tp=2 roles.rollout.pp=2 " +
                             std::string(R"(roles.rollout.ranks='"0-3"' roles.trainer.ranks='"0"')"))),
            0)
      << output();
  bool forks = false;
  for (const Json& line : responses("made", 1)) forks |= line.value("fork", 0) > 0;
  EXPECT_TRUE(forks);
  const std::string replay = "--replay" + rollout_files("made");
  struct Layout {
    std::string name, roles;
    int ranks;
  };
  const std::vector<Layout> layouts = {
      {"one", "", 1},
      {"lone", R"(roles.rollout.ranks='"0-1"' roles.trainer.ranks='"2"')", 3},
      {"tp2", "roles.trainer.tp=2", 2},
      {"pp2", "roles.trainer.pp=2", 2},
      {"dp2", "", 2}};
  for (const Layout& l : layouts) {
    ASSERT_EQ(run(l.ranks, train("replay-" + l.name, "--no-such-program", l.roles + " " + replay)), 0)
        << l.name << output();
    EXPECT_EQ(responses("replay-" + l.name, 1).size(), responses("made", 1).size());
  }
  for (const char* same : {"replay-one", "replay-lone"})
    EXPECT_TRUE(exported_weights("made", kSteps) == exported_weights(same, kSteps)) << same;
  // The same layout, with programs and without.
  for (const char* name : {"tp2", "pp2", "dp2"}) {
    const Layout& l = *std::ranges::find(layouts, name, &Layout::name);
    ASSERT_EQ(run(l.ranks, train(l.name, "--talk", l.roles)), 0) << output();
    ASSERT_EQ(run(l.ranks, train(l.name + "-again", "--no", l.roles + " --replay" + rollout_files(l.name))),
              0)
        << output();
    EXPECT_TRUE(exported_weights(l.name, kSteps) == exported_weights(l.name + "-again", kSteps)) << name;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (const auto code = temper::talk_if_asked(argc, argv)) return *code;
  if (const auto code = temper::play_if_asked(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

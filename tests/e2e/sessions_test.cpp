// Runs whose samples are played by programs: what was sampled is what is trained, whatever arrives when, over
// HTTP as over pipes, on one rank as on several; programs that fail end their session and nothing else.

#include <set>

#include "src/agents/server/listener.h"
#include "tests/agents/player.h"
#include "tests/agents/session_runs.h"
#include "tests/support/background.h"

namespace temper {
namespace {

const char* kThreeSteps = R"(
run.name = "whole"
run.steps = 3
data.chat = true
rollout.prompts_per_step = 3
rollout.samples_per_prompt = 3
rollout.max_prompt_tokens = 100
rollout.max_new_tokens = 100
rollout.max_turn_tokens = 12
train.samples_per_update = 9
checkpoint.every = 1
checkpoint.keep = 9
checkpoint.export_hf_every = 3
)";

class Sessions : public SessionRuns {
 protected:
  void SetUp() override { prepare_runs(kThreeSteps); }

  /// `play`: arguments of the player; "few": two sessions at once.
  static std::string train(const std::string& name, const std::string& play, const std::string& more = "") {
    std::string arguments = "--play", kind = "episode";
    int64_t in_flight = 32;
    std::istringstream words(play);
    for (std::string word; words >> word;) {
      if (word == "few") {
        in_flight = 2;
        continue;
      }
      arguments += " " + word;
      if (word == "service") kind = word;
    }
    return SessionRuns::train(name, arguments, more,
                              fmt::format("kind = \"{}\", in_flight = {}", kind, in_flight));
  }
  /// The first exit code that is not 0. Each run has a keeper of programs, which is forked before MPI starts.
  int runs(const std::vector<RanksRun>& all) const {
    for (const RanksRun& one : all)
      if (const int code = run(one.ranks, one.arguments); code != 0) return code;
    return 0;
  }
  void expect_same_run(const std::string& a, const std::string& b) const {
    expect_same_rollouts(a, b, 3);
    EXPECT_TRUE(exported_weights(a, 3) == exported_weights(b, 3)) << "weights: " << a << ", " << b;
  }
  void expect_trained(const std::string& name) const {
    expect_one_numerics(name);
    for (const Json& line : program_.metrics(name))
      EXPECT_GT(line.value("actor/grad_norm", 0.0), 0.0) << name;
  }
};

/// A program that sends the line's own prompt, for one turn, gives the bits of a run without it.
TEST_F(Sessions, OneTurnIsARunWithoutThem) {
  const std::string length =
      "'reward.functions=[\"arithmetic\"]' algorithm.entropy_coef=0.1 rollout.max_turn_tokens=0 ";
  ASSERT_EQ(runs({{1, train("played", "episode", length)},
                  {1, "train run.toml run.name=plain " + length + "rollout.harness=[]"}}),
            0)
      << output();
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<Json> a = responses("played", step), b = responses("plain", step);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i]["prompt_tokens"], b[i]["prompt_tokens"]);
      if (step > 1) continue;  // the program's reward is another
      EXPECT_EQ(a[i]["response_tokens"], b[i]["response_tokens"]) << i;
      EXPECT_EQ(a[i]["logprobs"], b[i]["logprobs"]) << i;
    }
  }
}

TEST_F(Sessions, TurnsAreTrainedAsTheyWereSampled) {
  ASSERT_EQ(runs({{1, train("whole", "episode --turns 3")},
                  {1, train("late", "episode --turns 3 --jitter 60")},
                  {1, train("piped", "service --turns 3")},
                  {2, train("tp", "episode --turns 3 --jitter 20", "roles.rollout.tp=2 roles.trainer.tp=2")},
                  {2, train("dp", "episode --turns 3")}}),
            0)
      << output();
  expect_trained("whole");
  std::set<double> rewards;
  for (const Json& t : responses("whole", 1)) {
    const auto mask = t["response_mask"].get<std::vector<int>>();
    EXPECT_GT(std::count(mask.begin(), mask.end(), 0), 10) << "observations are not trained";
    EXPECT_GT(std::count(mask.begin(), mask.end(), 1), 3);
    EXPECT_EQ(t["turns"], 3);
    EXPECT_EQ(t["end_reason"], "done");
    EXPECT_EQ(t["reward_parts"]["harness"], t["reward"]);
    rewards.insert(t["reward"].get<double>());
  }
  EXPECT_GT(rewards.size(), 1u);
  for (int64_t step = 1; step <= 3; ++step) {
    EXPECT_GT(metric("whole", step, "rollout/turn_found_share"), 0.5);
    EXPECT_EQ(metric("whole", step, "rollout/turn_again_share"), 0) << "there are pages enough";
  }
  for (const char* other : {"late", "piped"}) expect_same_run("whole", other);
  // Gradients are summed in the order of the layout: what later weights sample is not the same.
  for (const char* other : {"tp", "dp"}) EXPECT_EQ(rollouts("whole", 1), rollouts(other, 1)) << other;
}

/// Trainer ranks play sessions of a validation, each its own and one of them none, and send tokens to the
/// experts of others at every step of any of them.
TEST_F(Sessions, ValidationIsPlayedWithExpertsOverRanks) {
  ASSERT_EQ(
      program_.init_model("experts", R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 32, "moe_intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 2,
  "norm_topk_prob": true, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 16, "vocab_size": 6400, "max_position_embeddings": 512, "tie_word_embeddings": true,
  "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "initializer_range": 0.2, "eos_token_id": 2})"),
      0)
      << output();
  const std::string keys =
      "model.path=experts run.steps=1 'validation.data=[\"data.jsonl\"]' validation.at_start=true "
      "validation.max_prompts=3 ";
  ASSERT_EQ(runs({{1, train("one", "episode --turns 2", keys)},
                  {4, train("four", "episode --turns 2 --jitter 30", keys + "roles.trainer.ep=4")},
                  {4, train("stages", "episode --turns 2",
                            keys + "roles.trainer.ep=2 roles.trainer.pp=2 roles.rollout.pp=1")}}),
            0)
      << output();
  const auto played = [&](const char* run) {
    return program_.read(fmt::format("runs/{}/validation/step-000000.jsonl", run));
  };
  const std::string want = played("one");
  EXPECT_EQ(std::ranges::count(want, '\n'), 3);
  for (const char* run : {"four", "stages"}) EXPECT_EQ(played(run), want) << run;
}

/// Histories that begin anew, and second agents: other samples of the same session.
TEST_F(Sessions, ForksAreSamplesOfTheirSession) {
  ASSERT_EQ(runs({{1, train("forks", "episode --turns 4 --forget --two")},
                  {1, train("later", "episode --turns 4 --forget --two --jitter 40")}}),
            0)
      << output();
  expect_trained("forks");
  expect_same_run("forks", "later");
  std::map<int, std::set<double>> advantages;
  int forks = 0;
  for (const Json& t : responses("forks", 1)) {
    forks += t.value("fork", 0) > 0;
    advantages[t["group"].get<int>() * 100 + t["sample"].get<int>()].insert(t["advantage"].get<double>());
  }
  EXPECT_EQ(advantages.size(), 9u);
  EXPECT_EQ(forks, 2 * 9);
  for (const auto& [session, values] : advantages) EXPECT_EQ(values.size(), 1u) << session;
}

TEST_F(Sessions, FailuresEndTheirSessionAlone) {
  ASSERT_EQ(program_.run(train("faults", "episode --turns 2 --faults")), 0) << output();
  EXPECT_EQ(count("sessions ended without a reward"), 1) << "it is said once: " << output();
  int without = 0;
  std::set<std::string> reasons;
  for (int64_t step = 1; step <= 3; ++step)
    for (const Json& t : responses("faults", step)) {
      without += t["reward"].is_null();
      reasons.insert(t["end_reason"]);
    }
  EXPECT_GT(without, 0);
  EXPECT_EQ(reasons, (std::set<std::string>{"done", "died", "nonsense", "no_reward"}));
}

/// A user knows the port by the key that sets it.
TEST_F(Sessions, APortInUseIsNamedByItsKey) {
  const Listener taken("127.0.0.1", 0, "port");
  const std::string port = std::to_string(taken.port());
  EXPECT_EQ(program_.run(train("taken", "episode", "rollout.server.port=" + port)), 78) << output();
  EXPECT_TRUE(says("rollout.server.port: port " + port) && says("set rollout.server.port to another port"))
      << output();
  EXPECT_EQ(program_.run("serve --model model --port " + port), 78) << output();
  EXPECT_TRUE(says("--port: port " + port) && says("set --port to another port")) << output();
}

/// A service may post the reward, with a key that whoever has the model's key does not have.
TEST_F(Sessions, ARewardNeedsItsOwnKey) {
  ASSERT_EQ(program_.run(train("posted", "service --post", "run.steps=1")), 0) << output();
  for (const Json& t : responses("posted", 1)) {
    EXPECT_EQ(t["reward"], 0.25);
    EXPECT_EQ(t["reward_parts"]["harness/posted"], 1.0);
  }
}

/// `--replay` trains what was recorded, bit for bit, and asks nobody.
TEST_F(Sessions, ReplayNeedsNoProgram) {
  ASSERT_EQ(program_.run(train("whole", "episode --turns 3 --forget")), 0) << output();
  ASSERT_EQ(runs({{1, train("again", "episode --turns 3 --forget", "--replay" + rollout_files("whole", 3))}}),
            0)
      << output();
  EXPECT_TRUE(exported_weights("whole", 3) == exported_weights("again", 3));
}

TEST_F(Sessions, AStoppedRunGoesOnWithTheSameBits) {
  ASSERT_EQ(program_.run(train("whole", "episode --turns 3")), 0) << output();
  {
    Background job(program_, program_.temper() + " " + train("cut", "episode --turns 3 --jitter 100"));
    ASSERT_TRUE(job.until([&] { return steps_done("cut") >= 1; })) << output();
    ::kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), 75);
  }
  ASSERT_EQ(program_.run(train("cut", "episode --turns 3")), 0) << output();
  expect_same_run("whole", "cut");
}

/// With tokens_per_step a session lives on over several steps, also where programs wait for those that rest.
TEST_F(Sessions, TurnsGoOnInLaterSteps) {
  const std::string cut = "rollout.tokens_per_step=20 run.steps=4 ";
  ASSERT_EQ(runs({{1, train("cut", "episode --turns 3", cut)},
                  {1, train("cut_late", "episode --turns 3 --jitter 40", cut)},
                  {1, train("few", "few service --turns 3", cut)},
                  {1, train("few_late", "few service --turns 3 --jitter 20", cut)},
                  {2, train("cut_tp", "episode --turns 3", cut + "roles.rollout.tp=2 roles.trainer.tp=2")},
                  {2, train("cut_dp", "episode --turns 3 --jitter 20", cut)}}),
            0)
      << output();
  EXPECT_GT(metric("cut", 1, "rollout/prompts_unfinished"), 0);
  EXPECT_EQ(metric("cut", 4, "rollout/prompts_unfinished"), 0) << "the last step finishes all";
  for (const Json& t : responses("cut", 2)) {
    EXPECT_EQ(t["turns"], 3);
    EXPECT_EQ(t.at("policy_versions").size(), 2u) << "tokens of two steps";
  }
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_EQ(rollouts("cut", step), rollouts("cut_late", step)) << "step " << step;
    EXPECT_TRUE(rollouts("few", step) == rollouts("few_late", step)) << "step " << step;
  }
  for (const char* other : {"cut_tp", "cut_dp"}) EXPECT_EQ(rollouts("cut", 2), rollouts(other, 2)) << other;
}

TEST_F(Sessions, AStoppedStepGoesOnWithItsTurns) {
  const std::string cut = "rollout.tokens_per_step=20 ";
  ASSERT_EQ(program_.run(train("whole", "episode --turns 3", cut)), 0) << output();
  for (const int wait_ms : {0, 150}) {
    const std::string name = fmt::format("cut{}", wait_ms);
    {
      Background job(program_, program_.temper() + " " + train(name, "episode --turns 3 --jitter 100", cut));
      ASSERT_TRUE(job.until([&] { return steps_done(name) >= 1; })) << output();
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      ::kill(job.pid(), SIGTERM);
      EXPECT_EQ(job.wait(), 75);
    }
    ASSERT_EQ(program_.run(train(name, "episode --turns 3", cut)), 0) << output();
    expect_same_run("whole", name);
    for (int64_t step = 1; step <= 3; ++step)
      EXPECT_EQ(metric(name, step, "rollout/rows_generated"), metric("whole", step, "rollout/rows_generated"))
          << name << ", step " << step << ": what was answered is not sampled again";
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (const auto code = temper::play_if_asked(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

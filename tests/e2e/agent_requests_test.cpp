// What programs may ask, and what of it is trained: several programs in one run, fields and names that a
// config lets through, sampling that is the run's, turns that wait for the next step, a program that asks
// otherwise after a kill, and that nothing of requests is logged.

#include <set>

#include "tests/agents/player.h"
#include "tests/agents/scripted.h"
#include "tests/agents/session_runs.h"
#include "tests/support/background.h"

namespace temper {
namespace {

/// Requests by the fields that they have beside the messages.
Json asks(std::initializer_list<Json> fields) {
  Json list = Json::array();
  for (const Json& one : fields) list.push_back({{"fields", one}});
  return list;
}

/// A request that is refused by the name of a field.
Json refused(const Json& fields, const std::string& name) {
  return {{"fields", fields}, {"status", 400}, {"says", name}};
}

class AgentRequests : public SessionRuns {
 protected:
  /// Data whose lines are these, each with a prompt of its own.
  void write_lines(const std::vector<Json>& lines) const {
    std::string data;
    for (size_t i = 0; i < lines.size(); ++i) {
      Json line{{"prompt", fmt::format("What is {} plus {}?", i, i)}, {"answer", std::to_string(2 * i)}};
      line.update(lines[i]);
      data += line.dump() + "\n";
    }
    program_.write("data.jsonl", data);
  }
  /// Every session of the step ended by itself, with the reward of its script.
  std::vector<Json> expect_done(const std::string& run, int64_t step = 1) const {
    std::vector<Json> all = responses(run, step);
    for (const Json& t : all) {
      EXPECT_EQ(t["end_reason"], "done") << t.dump();
      EXPECT_EQ(t["reward"], 1) << t.dump();
    }
    return all;
  }
  static std::string self() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
};

/// Each line goes to the program that it names; rollouts say which that was, and what it asked.
TEST_F(AgentRequests, LinesChooseAmongTwoPrograms) {
  const Json two = asks({Json::object(), Json::object()});
  write_lines({{{"environment", "calm"}, {"ask", two}}, {{"environment", "pipes"}}});
  const std::string programs = fmt::format(
      "'rollout.harness=[{{name = \"calm\", argv = [\"{0}\", \"--script\", \"calm\"]}}, "
      "{{name = \"pipes\", kind = \"service\", argv = [\"{0}\", \"--play\", \"service\", \"--turns\", "
      "\"3\"]}}]'",
      self());
  ASSERT_EQ(program_.run("train run.toml run.name=two run.steps=1 " + programs), 0) << output();
  std::map<std::string, int> sessions;
  for (const Json& t : responses("two", 1)) {
    const std::string name = t.at("environment");
    ++sessions[name];
    const bool calm = t["prompt"].get<std::string>().find("What is 0") != std::string::npos;
    EXPECT_EQ(name, calm ? "calm" : "pipes") << t["prompt"];
    EXPECT_EQ(t.at("reward_parts").contains("harness/calm"), calm) << t.at("reward_parts");
    EXPECT_EQ(t.at("reward_parts").contains("harness/length"), !calm) << t.at("reward_parts");
    EXPECT_EQ(t["fork"], 0);
    EXPECT_EQ(t["turns"], calm ? 2 : 3);
    EXPECT_EQ(t["end_reason"], "done");
    const Json& requests = t.at("requests");
    ASSERT_EQ(requests.size(), calm ? 2u : 3u) << requests;
    for (size_t i = 0; i < requests.size(); ++i) {
      const Json& brought = requests[i]["messages"];
      EXPECT_EQ(requests[i]["turn"], i);
      EXPECT_EQ(requests[i]["known"], 2 * i) << "what was said before is not said again: " << requests[i];
      ASSERT_EQ(brought.size(), 1u) << requests[i];
      EXPECT_EQ(brought[0]["role"], "user");
      const std::string text = brought[0]["content"];
      EXPECT_TRUE(text.starts_with(i == 0 ? "What is" : calm ? "Go on, calm." : "Go on, ")) << text;
    }
  }
  EXPECT_EQ(sessions, (std::map<std::string, int>{{"calm", 3}, {"pipes", 3}}));
}

/// `requests` stands in the first sample of a session alone.
TEST_F(AgentRequests, ForksHaveTheRequestsOfTheirSessionOnce) {
  ASSERT_EQ(program_.run(train("forks", "--play episode --turns 3 --forget --two", "run.steps=1")), 0)
      << output();
  int forks = 0;
  for (const Json& t : responses("forks", 1)) {
    EXPECT_EQ(t.contains("requests"), t["fork"] == 0) << t;
    if (t["fork"] == 0) {
      EXPECT_EQ(t.at("requests").size(), 4u) << "three turns and the other agent's: " << t.at("requests");
    }
    forks += t["fork"] > 0;
  }
  EXPECT_GT(forks, 0);
}

TEST_F(AgentRequests, WhatIsNotObeyedIsRefusedByNameUnlessItIsIgnored) {
  const Json format{{"response_format", {{"type", "json_object"}}}}, choice{{"tool_choice", "required"}},
      unknown{{"model", "gpt-9"}}, small{{"model", "small"}};
  write_lines({{{"ask",
                 {refused(format, "response_format"),
                  refused(choice, "tool_choice"),
                  {{"fields", unknown}, {"status", 404}, {"says", "aliases"}},
                  {{"fields", Json::object()}}}}}});
  const std::string one = "run.steps=1 rollout.prompts_per_step=1 train.samples_per_update=3 ";
  ASSERT_EQ(program_.run(train("strict", "--script strict", one)), 0) << output();
  for (const Json& t : expect_done("strict")) EXPECT_EQ(t["turns"], 1);
  EXPECT_EQ(metric("strict", 1, "rollout/requests_refused"), 3 * 2);
  Json names = asks({format, choice, unknown, small});
  write_lines({{{"ask", names}, {"env", {"PLAIN", "NAMED", "NOT_GIVEN"}}}});
  ::setenv("AGENT_REQUESTS_VALUE", "7", 1);
  ::setenv("NOT_GIVEN", "8", 1);
  const std::string harness =
      "ignore = [\"response_format\", \"tool_choice\"], env = {PLAIN = \"3\", NAMED = "
      "\"$AGENT_REQUESTS_VALUE\"}, aliases = {gpt-9 = \"policy\", small = \"policy-untrained\"}";
  ASSERT_EQ(program_.run(train("open", "--script open", one, harness)), 0) << output();
  for (const Json& t : expect_done("open")) {
    EXPECT_EQ(t.at("reward_parts"), (Json{{"harness", 1},
                                          {"harness/open", 1},
                                          {"harness/PLAIN", 3},
                                          {"harness/NAMED", 7},
                                          {"harness/NOT_GIVEN", -1}}));
    EXPECT_EQ(t.at("requests").size(), 4u);
    EXPECT_EQ(t.at("requests")[3]["trained"], false) << "an alias of policy-untrained";
    EXPECT_EQ(t["turns"], 3) << "what is not trained at the end of a path is no part of it";
  }
  ::unsetenv("AGENT_REQUESTS_VALUE");
  ::unsetenv("NOT_GIVEN");
  EXPECT_EQ(program_.run(train("unset", "--script open", one, harness)), 64);
  EXPECT_TRUE(says("AGENT_REQUESTS_VALUE is not set") && says("env.NAMED")) << output();
}

/// What is sampled is the same whatever clients wish; that they do is counted, and said once with both
/// values.
TEST_F(AgentRequests, SamplingIsTheRuns) {
  const Json wishes{{"temperature", 0.25}, {"top_p", 0.5}, {"seed", 9}, {"logit_bias", {{"77", 1000}}}},
      more{{"temperature", 0.75}, {"seed", 10}}, same{{"temperature", 1}};
  const Json none = Json::object();
  const std::string one = "run.steps=1 rollout.prompts_per_step=1 train.samples_per_update=3 ";
  write_lines({{{"ask", asks({none, none, none})}}});
  ASSERT_EQ(program_.run(train("plain", "--script sampled", one)), 0) << output();
  EXPECT_EQ(count("and the run's holds"), 0) << output();
  write_lines({{{"ask", asks({same, wishes, more})}}});
  ASSERT_EQ(program_.run(train("wishes", "--script sampled", one)), 0) << output();
  EXPECT_EQ(rollouts("wishes", 1), rollouts("plain", 1));
  EXPECT_EQ(metric("wishes", 1, "rollout/run_sampling_held/temperature"), 3 * 3);
  EXPECT_EQ(metric("wishes", 1, "rollout/run_sampling_held/top_p"), 3);
  EXPECT_EQ(metric("wishes", 1, "rollout/run_sampling_held/logit_bias"), 3);
  EXPECT_EQ(metric("wishes", 1, "rollout/run_sampling_held/seed"), 3 * 2);
  EXPECT_EQ(count("a program asks for seed "), 1) << output();
  EXPECT_EQ(count("a program asks for temperature 0.25, and the run's holds: rollout.temperature = 1"), 1)
      << output();
  EXPECT_EQ(count("a program asks for temperature"), 1) << output();
  EXPECT_EQ(count("a program asks for top_p 0.5, and the run's holds: rollout.top_p = 1"), 1) << output();
  EXPECT_EQ(count("a program asks for a logit_bias of 1 tokens"), 1) << output();
}

/// A turn that no step has the tokens for goes on in the next ones, and its client waits, as a stream or not.
TEST_F(AgentRequests, ClientsOfTurnsThatAreCutWaitForTheNextSteps) {
  const Json ids{{"return_token_ids", true}}, stream{{"return_token_ids", true}, {"stream", true}};
  write_lines({{{"ask", asks({stream, ids})}}, {{"ask", asks({ids, stream})}}});
  ASSERT_EQ(
      program_.run(train(
          "cut", "--script waits",
          "run.steps=3 rollout.tokens_per_step=20 rollout.max_prompt_tokens=100 rollout.max_new_tokens=100 "
          "rollout.max_turn_tokens=30 rollout.min_new_tokens=30")),
      0)
      << output();
  int over_three = 0;
  for (const Json& t : expect_done("cut", 3)) {
    const Json& parts = t.at("reward_parts");
    EXPECT_EQ(t["turns"], 2);
    EXPECT_EQ(parts["harness/stream_tokens"], 30) << parts;
    EXPECT_EQ(parts["harness/stream_ended"], 1) << parts;
    if (t.value("policy_versions", Json::array()).size() < 3) continue;  // it began later
    ++over_three;
    EXPECT_EQ(parts["harness/versions"], 2) << "a turn has tokens of two steps: " << parts;
  }
  EXPECT_EQ(over_three, 6) << "both lines' sessions of the first step";
}

/// Recorded answers are given while the program asks as it did; what it asks then is sampled, and counted.
TEST_F(AgentRequests, AProgramThatAsksOtherwiseAfterAKillIsSampledOn) {
  const Json none = Json::object();
  write_lines({{{"ask", asks({none, none, none})}}, {{"ask", asks({none, none, none})}}});
  const std::string more =
      "run.steps=3 checkpoint.every=1 rollout.tokens_per_step=20 rollout.max_turn_tokens=8 "
      "rollout.min_new_tokens=8 ";
  ASSERT_EQ(program_.run(train("whole", "--script first", more)), 0) << output();
  for (const std::string life : {"first", "second"}) {
    {
      Background job(program_, program_.temper() + " " + train(life, "--script first", more));
      ASSERT_TRUE(job.until([&] { return exists(checkpoint(life, 1) + "/manifest.json"); })) << output();
      ::kill(job.pid(), SIGKILL);
      EXPECT_EQ(job.wait(), 128 + SIGKILL);
    }
    for (const int64_t later : {2, 3}) std::filesystem::remove_all(program_.path(checkpoint(life, later)));
    ASSERT_EQ(program_.run(train(life, "--script " + life, more)), 0) << output();
    const bool same = life == "first";
    const std::vector<Json> done = expect_done(life, 2), before = expect_done("whole", 2);
    ASSERT_EQ(done.size(), 6u);
    EXPECT_EQ(metric(life, 2, "rollout/sessions_diverged"), same ? -1 : 6) << life;
    for (size_t i = 0; i < done.size(); ++i) {
      const auto first = [](const Json& t) {
        const auto ids = t["response_tokens"].get<std::vector<int>>();
        return std::vector<int>(ids.begin(), ids.begin() + 8);
      };
      EXPECT_EQ(first(done[i]), first(before[i])) << "the first turn is the recorded one";
      EXPECT_EQ(done[i].at("policy_versions")[0][0], 0) << done[i]["policy_versions"];
      EXPECT_EQ(done[i]["response_tokens"] == before[i]["response_tokens"], same) << life;
      EXPECT_EQ(done[i]["turns"], 3);
      EXPECT_EQ(done[i]["requests"].size(), 3u) << "what was not asked again is none of the session";
    }
    if (same) expect_same_rollouts("whole", life, 3);
  }
}

/// Neither keys nor bodies are in what a run writes, whatever became of the request; rollouts hold messages.
TEST_F(AgentRequests, NothingOfRequestsIsLogged) {
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {MARK}\r\nContent-Type: "
      "application/json\r\nContent-Length: 5\r\n";
  const Json said{{"role", "user"}, {"content", "{MARK}"}};
  write_lines({{{"key_file", program_.path("keys")},
                {"ask",
                 {{{"fields", {{"messages", {said}}, {"user", "{MARK}"}}}},
                  refused({{"response_format", {{"type", "{MARK}"}}}}, "response_format"),
                  {{"body", "{\"messages\": \"{MARK}"}, {"status", 400}},
                  {{"fields", {{"model", "{MARK}"}}}, {"status", 404}},
                  {{"path", "/v1/{MARK}"}, {"status", 404}},
                  {{"key", "key{MARK}"}, {"status", 401}},
                  {{"body", "{MARK}" + std::string(3000, 'x')}, {"status", 413}},
                  {{"http", head + "\r\n{\"{MARK}"}, {"status", 401}},
                  {{"http", "POST {MARK}\r\n{MARK}\r\n\r\n"}, {"status", 400}},
                  {{"fields", Json::object()}}}}}});
  ASSERT_EQ(program_.shell(program_.temper() + " " +
                           train("quiet", "--script quiet",
                                 "run.steps=2 rollout.prompts_per_step=1 train.samples_per_update=3 "
                                 "log.level=debug rollout.server.max_body=2KiB checkpoint.every=1")),
            0)
      << output();
  std::set<std::string> secrets{kSecretMark};
  std::ifstream keys(program_.path("keys"));
  for (std::string key; std::getline(keys, key);) secrets.insert(key);
  EXPECT_EQ(secrets.size(), 1 + 2 * 3u) << "a key for each session";
  expect_done("quiet");
  EXPECT_NE(rollouts("quiet", 1).find(kSecretMark), std::string::npos) << "the mark was sent";
  int files = 0;
  const auto expect_none = [&](const std::string& name, const std::string& text) {
    ++files;
    for (const std::string& secret : secrets) EXPECT_EQ(text.find(secret), std::string::npos) << name;
  };
  expect_none("what was printed", output());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(program_.path("runs/quiet"))) {
    const std::string name = entry.path().string();
    if (!entry.is_regular_file() || name.find("/rollouts/") != std::string::npos) continue;
    expect_none(name, read_file(name, int64_t{1} << 30));
  }
  EXPECT_GT(files, 5);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (const auto code = temper::script_if_asked(argc, argv)) return *code;
  if (const auto code = temper::play_if_asked(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

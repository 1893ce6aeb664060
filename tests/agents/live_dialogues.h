#pragma once
// Random dialogues through the server of sessions and the engine with a small random model: two agents of
// each session at once, over HTTP. What is trained of them is what the engine said, once each, and has the
// bits that `temper score` finds.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "src/agents/service/session_service.h"
#include "src/ops/backend.h"
#include "src/train/token_pass.h"
#include "tests/agents/dialogue_agent.h"
#include "tests/agents/server/client.h"
#include "tests/support/tiny_model.h"

namespace temper {

class LiveDialogues {
 public:
  struct Totals {
    int64_t turns = 0, extended = 0, calls = 0, thoughts = 0, samples = 0, tokens = 0;
  };

  explicit LiveDialogues(const std::string& name)
      : template_(name, pieces()),
        model_(tiny_model(DType::bf16, template_.words.vocab_size(), kContext)),
        desk_(1),
        service_(service_options(), template_.words, template_.chat, desk_) {}

  /// Sessions `from` to `to`, all at once.
  Totals play(uint64_t from, uint64_t to) {
    std::vector<std::thread> agents;
    std::atomic<int> left = 0;
    for (uint64_t session = from; session < to; ++session) {
      const SessionAccess access = open(session);
      for (uint64_t agent = 0; agent < 2; ++agent) {
        ++left;
        agents.emplace_back([this, &left, access, number = session * 4 + agent] {
          talk(access, number);
          --left;
          desk_.wake();
        });
      }
    }
    generate(left);
    for (std::thread& agent : agents) agent.join();
    check_sessions();
    auto counts = service_.take_counts();
    EXPECT_EQ(counts["rollout/turn_rows_again"], 0) << "of " << counts["rollout/turn_rows"];
    EXPECT_GT(counts["rollout/turn_rows_found"], counts["rollout/turn_rows"] / 3);
    return std::exchange(totals_, {});
  }

 private:
  static constexpr int64_t kContext = 4096;
  /// A sampled token behind all that is before it, with its log-prob.
  using Sampled = std::tuple<Ids, int32_t, double>;
  struct Heard {
    std::set<std::string> turns = {};  // that are trained, by the ids of their answers
    std::multiset<Sampled> tokens = {};
  };

  /// What a random model would hardly say by itself.
  static std::vector<std::string> pieces() {
    std::vector<std::string> all{"<think>\nwell\n</think>\n\n", "<think>\n", "\n</think>\n\n"};
    for (int a = 1; a < 4; ++a)
      all.push_back(
          fmt::format("\n<tool_call>\n{{\"name\": \"add\", \"arguments\": {{\"a\": {}}}}}\n</tool_call>", a));
    return all;
  }
  SessionService::Options service_options() const {
    SessionService::Options o;
    o.http.max_connections = 2048;
    o.rules.context_tokens = kContext;
    o.rules.defaults = sampling();
    return o;
  }
  GenerateOptions sampling() const {
    GenerateOptions o;
    o.seed = 7;
    o.max_new_tokens = kTurnTokens;
    o.num_sampleable = template_.words.vocab_size();
    o.stop_token_ids = {template_.end};
    const auto added = static_cast<int32_t>(pieces().size());
    for (int32_t id = o.num_sampleable - added; id < o.num_sampleable; ++id) o.logit_bias[id] = bias();
    o.logit_bias[template_.end] = bias() + 1;
    return o;
  }
  /// That makes them a few of ten tokens.
  double bias() const { return template_.bytes ? 2 : 5; }

  SessionAccess open(uint64_t session) {
    const SessionAccess access = service_.open(
        {.seed = 7,
         .data_position = static_cast<int64_t>(session),
         .sample = 1,
         .line_prompt = template_.cut.whole(
             Json::array({message("user", fmt::format("a question, {}", session * 4))}), nullptr, nullptr),
         .stop_token_ids = {template_.end},
         .num_ids = template_.words.vocab_size(),
         .limits = {.turn_tokens = kTurnTokens, .context_tokens = kContext}});
    heard_[access.number];
    return access;
  }

  void generate(const std::atomic<int>& left) {
    Lane lane;
    EngineOptions options{.scheduler = {.max_running_sequences = 64}};
    options.num_pages = 16384;
    options.find_pages = true;
    Engine engine(*model_, options, lane);
    const GenerateOptions rules = sampling();
    DeskGeneration generation(engine, rules, &template_.words, desk_);
    while (left > 0) {
      generation.take(desk_.take());
      generation.idle() ? desk_.wait(std::chrono::milliseconds(20)) : generation.step(backend_.ctx());
    }
  }

  void talk(const SessionAccess& access, uint64_t number) {
    Agent agent(template_, number);
    const std::string& url = access.anthropic_base_url;
    Client client(std::stoi(url.substr(url.rfind(':') + 1)));
    while (!agent.through()) {
      const TurnAsk ask = agent.request();
      const std::string body = Json{
          {"model", ask.trained ? "policy" : "policy-untrained"},
          {"messages", ask.messages},
          {"tools", template_.cut.format(Json()).takes_tools ? ask.tools : Json()},
          {"logprobs", true},
          {"return_token_ids",
           true}}.dump();
      client.write(
          fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n"
                      "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                      access.key, body.size(), body));
      const ClientAnswer answer = client.read(60);
      if (answer.status != 200) {
        EXPECT_EQ(answer.status, 400) << answer.body;
        EXPECT_NE(answer.body.find("template"), std::string::npos) << answer.body;
        return agent.refused();
      }
      hear(access.number, agent, ask, Json::parse(answer.body));
    }
  }

  void hear(uint64_t session, Agent& agent, const TurnAsk& ask, const Json& answer) {
    const Json& choice = answer["choices"][0];
    const Ids prompt = answer["prompt_token_ids"];
    EXPECT_EQ(prompt, agent.expected()) << "the ids are not the parts, of " << ask.messages.dump();
    struct {
      Json answer;
      Response response;
    } turn{normal_messages(Json::array({choice["message"]}))[0], {}};
    turn.response.tokens = choice["token_ids"].get<Ids>();
    turn.response.finish = choice["finish_reason"] == "length" ? FinishReason::length : FinishReason::stop;
    note(heard_.at(session), ask, answer, prompt);
    agent.answered(prompt, turn);
  }

  void note(Heard& heard, const TurnAsk& ask, const Json& answer, Ids before) {
    const std::lock_guard lock(mutex_);
    const Json& choice = answer["choices"][0];
    ++totals_.turns;
    totals_.extended += ask.messages.size() > 2;
    totals_.calls += choice["message"].contains("tool_calls");
    totals_.thoughts += choice["message"].contains("reasoning_content");
    // An answer that somebody got twice is one.
    if (!ask.trained || !heard.turns.insert(answer["id"]).second) return;
    const Ids tokens = choice["token_ids"];
    for (size_t i = 0; i < tokens.size(); ++i) {
      heard.tokens.emplace(before, tokens[i], choice["logprobs"]["content"][i]["logprob"].get<double>());
      before.push_back(tokens[i]);
    }
  }

  void check_sessions() {
    for (const auto& [number, heard] : heard_) service_.end(number, {.reward = 1.0});
    std::vector<SessionResult> ended;
    while (ended.size() < heard_.size()) {
      for (SessionResult& result : service_.take_ended()) ended.push_back(std::move(result));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::vector<Trajectory> samples;
    for (const SessionResult& result : ended) {
      std::multiset<Sampled> trained;
      for (const SessionSample& sample : result.samples) {
        Ids before = sample.prompt_tokens;
        for (size_t i = 0; i < sample.response.tokens.size(); ++i) {
          const int32_t token = sample.response.tokens[i];
          if (sample.response.mask[i]) trained.emplace(before, token, sample.response.logprobs[i]);
          before.push_back(token);
        }
        Trajectory t;
        t.prompt_tokens = sample.prompt_tokens;
        t.response = sample.response;
        samples.push_back(std::move(t));
      }
      EXPECT_TRUE(trained == heard_.at(result.number).tokens)
          << "session " << result.number << ": " << trained.size() << " tokens are trained, "
          << heard_.at(result.number).tokens.size() << " were heard";
      totals_.tokens += std::ssize(trained);
    }
    totals_.samples += std::ssize(samples);
    heard_.clear();
    check_bits(samples);
  }

  void check_bits(const std::vector<Trajectory>& samples) {
    std::vector<const Trajectory*> all;
    for (const Trajectory& t : samples) all.push_back(&t);
    const std::vector<TokenValues> values =
        local_token_values(backend_.ctx(), *model_, all, {.token_budget = kContext, .cost = {}});
    for (size_t i = 0; i < samples.size(); ++i) {
      const Response& r = samples[i].response;
      for (size_t k = 0; k < r.tokens.size(); ++k) {
        if (r.mask[k] == 0) continue;
        EXPECT_EQ(r.logprobs[k], values[i].logprob[k]) << "token " << k << " of sample " << i;
      }
    }
  }

  static constexpr int64_t kTurnTokens = 16;
  const TemplateModel template_;
  const std::unique_ptr<Model> model_;
  Backend backend_{Device::cpu};
  EngineDesk desk_;
  SessionService service_;
  std::mutex mutex_;
  std::map<uint64_t, Heard> heard_;  // by number of the session
  Totals totals_;
};

inline const char* const kRealTemplates[] = {"qwen2.5", "qwen3", "minimind", "deepseek-v3"};

/// So many dialogues of each template, some at once, with what such tests are about.
inline void play_dialogues(uint64_t of_each) {
  constexpr uint64_t kAtOnce = 10;
  int64_t calls = 0, thoughts = 0;
  for (const char* name : kRealTemplates) {
    SCOPED_TRACE(name);
    LiveDialogues dialogues(name);
    LiveDialogues::Totals all;
    for (uint64_t from = 0; from < of_each; from += kAtOnce) {
      const auto some = dialogues.play(from, std::min(of_each, from + kAtOnce));
      all = {all.turns + some.turns,       all.extended + some.extended, all.calls + some.calls,
             all.thoughts + some.thoughts, all.samples + some.samples,   all.tokens + some.tokens};
    }
    fmt::print("{}: {} turns, {} with a history, {} with calls, {} with thoughts; {} samples, {} tokens\n",
               name, all.turns, all.extended, all.calls, all.thoughts, all.samples, all.tokens);
    calls += all.calls;
    thoughts += all.thoughts;
    const auto sessions = static_cast<int64_t>(of_each);
    EXPECT_GT(all.turns, 4 * sessions);
    EXPECT_GT(all.extended, 2 * sessions);
    EXPECT_GT(all.samples, sessions);
    EXPECT_GT(all.tokens, 20 * sessions);
  }
  EXPECT_GT(calls, static_cast<int64_t>(2 * of_each));
  EXPECT_GT(thoughts, 0);
}

}  // namespace temper

// Random programs over real templates: what their sessions train is the same whatever arrives when.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "src/agents/sessions/session.h"
#include "tests/agents/dialogue_agent.h"

namespace temper {
namespace {

using Kind = TurnStart::Kind;

/// The policy: what it says follows from the turn's noise.
struct Said {
  Response response;
  TurnText text;
};
Said say(const TemplateModel& m, const TurnStart& start, const Json& tools) {
  Random random(start.seed);
  std::string text;
  if (chance(random, 30)) text += "<think>\n" + random_text(random, random() % 4) + "\n</think>\n\n";
  text += random_text(random, random() % 5);
  for (int calls = chance(random, 40) ? 1 + chance(random, 30) : 0; calls > 0; --calls)
    text += fmt::format("\n<tool_call>\n{{\"name\": \"add\", \"arguments\": {{\"a\": {}}}}}\n</tool_call>",
                        random() % 9);
  Said said;
  Response& r = said.response;
  r.tokens = m.words.encode(text, /*add_special=*/false);
  const size_t plain = m.bytes ? 200 : 3000;
  for (size_t i = random() % 3; i > 0; --i)
    r.tokens.push_back(static_cast<int32_t>((m.bytes ? 0 : 300) + random() % plain));
  const bool stopped = r.tokens.empty() || chance(random, 80);
  r.finish = stopped ? FinishReason::stop : FinishReason::length;
  r.text = m.words.decode(r.tokens, /*skip_special=*/false);
  if (stopped) r.tokens.push_back(m.end);
  r.mask.assign(r.tokens.size(), 1);
  r.versions = {{3, static_cast<int32_t>(r.tokens.size())}};
  for (size_t i = 0; i < r.tokens.size(); ++i)
    r.logprobs.push_back(-std::ldexp(static_cast<double>(random() >> 11), -50));
  said.text = parse_turn(r.text, m.cut.format(nullptr), tools);
  return said;
}

/// A program of some agents in one order of events: who asks, who is answered, whose client is lost, where
/// the session is stopped and comes back.
class Play {
 public:
  /// `other`: what the program adds to its agents' numbers when it comes back.
  Play(const TemplateModel& m, uint64_t program, uint64_t order, bool stops, uint64_t other = 0)
      : model_(m), program_(program), random_(order), stops_(stops), other_(other), session_(setup(), m.cut) {
    for (size_t i = 0; i < 2; ++i) start(i);
  }

  void run() {
    while (step()) {
    }
    session_.end({});
  }

  const Session& session() const { return session_; }
  int64_t retries() const { return retries_; }
  int64_t extended() const { return extended_; }

 private:
  struct Player {
    Agent agent;
    std::optional<TurnStart> waits = {};
  };

  SessionSetup setup() const {
    return {
        .seed = 99,
        .data_position = 5,
        .sample = 2,
        .line_prompt = model_.cut.whole(
            Json::array({message("user", fmt::format("a question, {}", program_ * 4))}), nullptr, nullptr),
        .stop_token_ids = {model_.end},
        .num_ids = model_.words.vocab_size(),
        .limits = {.context_tokens = 100000}};
  }
  void start(size_t agent) { players_.push_back({Agent(model_, program_ * 4 + agent)}); }

  bool step() {
    std::vector<std::function<void()>> possible;
    for (Player& p : players_) {
      if (!p.waits && !p.agent.through()) possible.push_back([this, &p] { ask(p, /*retry=*/false); });
      if (!p.waits) continue;
      possible.push_back([this, &p] { answer_or_lose(p); });
    }
    if (!under_way_.empty()) possible.push_back([this] { sample(); });
    if (possible.empty()) return false;
    possible[random_() % possible.size()]();
    if (stops_ && chance(random_, 8)) stop();
    return true;
  }

  void ask(Player& p, bool retry) try {
    TurnAsk asked = p.agent.request();
    asked.retry = retry && chance(random_, 50);
    const TurnStart start = session_.ask(asked);
    if (start.kind == Kind::sample) {
      const Ids expected = p.agent.expected();
      EXPECT_EQ(start.prompt, expected) << asked.messages.dump();
      EXPECT_EQ(session_.prompt(start.turn), expected);
      extended_ += session_.turn(start.turn).parent.has_value();
      tools_[start.turn] = p.agent.tools();
      under_way_.push_back(start);
    }
    p.waits = start;
  } catch (const RequestError&) {
    p.agent.refused();
  }

  void sample() {
    const size_t which = random_() % under_way_.size();
    const TurnStart start = under_way_[which];
    under_way_.erase(under_way_.begin() + static_cast<int64_t>(which));
    Said said = say(model_, start, tools_[start.turn]);
    session_.sampled(start.turn, said.response, said.text);
  }

  void answer_or_lose(Player& p) {
    const size_t turn = p.waits->turn;
    if (p.agent.gives_up()) {
      session_.client_gone(turn);
      p.waits.reset();
      return p.agent.gave_up();
    }
    if (chance(random_, 15)) {
      session_.client_gone(turn);
      ++retries_;
      const size_t before = session_.turns();
      ask(p, /*retry=*/true);
      EXPECT_EQ(p.waits->turn, turn);
      EXPECT_EQ(session_.turns(), before);
    } else if (session_.turn(turn).finished) {
      session_.delivered(turn);
      p.waits.reset();
      p.agent.answered(session_.prompt(turn), session_.turn(turn));
    }
  }

  /// The run stops; the program starts anew, beside what is recorded.
  void stop() {
    stops_ = false;
    const Json record = parse_json(dump_json_line(session_.record()), "record");
    session_ = Session(setup(), model_.cut, record);
    under_way_.clear();
    players_.clear();
    for (size_t i = 0; i < 2; ++i) start(i + other_);
  }

  const TemplateModel& model_;
  uint64_t program_;
  Random random_;
  bool stops_;
  uint64_t other_;
  Session session_;
  std::vector<Player> players_;
  std::vector<TurnStart> under_way_;
  std::map<size_t, Json> tools_;
  int64_t retries_ = 0, extended_ = 0;
};

/// What the samples are, as text.
std::string shown(const std::vector<SessionSample>& samples) {
  Json all = Json::array();
  for (const SessionSample& s : samples)
    all.push_back({s.fork, s.prompt_tokens, s.response.tokens, s.response.mask, s.response.logprobs,
                   s.response.versions, s.response.text, finish_reason_name(s.response.finish), s.turns});
  return all.dump();
}

/// Noise, keys and prompts of the turns that count.
std::set<std::string> shown_turns(const Session& session) {
  std::set<std::string> all;
  for (size_t i = 0; i < session.turns(); ++i)
    if (const auto& t = session.turn(i); t.received)
      all.insert(Json{t.key, t.seed, t.trained, session.prompt(i), t.response.tokens, t.answer}.dump());
  return all;
}

/// Each token of a turn that a client has is trained in one sample, none else is anywhere.
void expect_each_token_once(const Session& session) {
  std::multiset<double> trained, sampled;
  const auto samples = session.samples();
  for (const SessionSample& s : samples) {
    int64_t versions = 0;
    for (const auto& [version, count] : s.response.versions) versions += count;
    ASSERT_EQ(versions, std::ssize(s.response.tokens));
    ASSERT_EQ(s.response.mask.size(), s.response.tokens.size());
    EXPECT_EQ(s.response.mask.front(), 1);
    EXPECT_EQ(s.response.mask.back(), 1);
    for (size_t i = 0; i < s.response.tokens.size(); ++i)
      if (s.response.mask[i]) trained.insert(s.response.logprobs[i]);
  }
  for (size_t i = 0; i < session.turns(); ++i)
    if (const auto& t = session.turn(i); t.received && t.trained)
      sampled.insert(t.response.logprobs.begin(), t.response.logprobs.end());
  EXPECT_EQ(trained, sampled);
}

TEST(Dialogues, WhatIsTrainedDoesNotDependOnWhatArrivesWhen) {
  const char* const names[] = {"qwen2.5", "qwen3", "minimind", "deepseek-v3", "style_coder"};
  int64_t retries = 0, extended = 0, turns = 0, forks = 0;
  for (const char* name : names) {
    const TemplateModel m{name};
    for (uint64_t program = 0; program < 100; ++program) {
      SCOPED_TRACE(fmt::format("{} program {}", name, program));
      Play one(m, program, 3 * program, /*stops=*/false);
      one.run();
      expect_each_token_once(one.session());
      for (const bool stops : {false, true}) {
        Play other(m, program, 3 * program + 1 + stops, stops);
        other.run();
        EXPECT_EQ(shown(one.session().samples()), shown(other.session().samples())) << stops;
        EXPECT_EQ(shown_turns(one.session()), shown_turns(other.session())) << stops;
        EXPECT_EQ(one.session().requests().dump(), other.session().requests().dump()) << stops;
        EXPECT_FALSE(other.session().diverged());
        retries += other.retries();
      }
      if (testing::Test::HasFailure()) return;
      extended += one.extended();
      turns += std::ssize(shown_turns(one.session()));
      forks += std::ssize(one.session().samples());
    }
  }
  fmt::print("{} turns, {} go on from others, {} samples, {} retries\n", turns, extended, forks, retries);
  EXPECT_GT(extended, 600);
  EXPECT_GT(forks, 400);
  EXPECT_GT(retries, 300);
}

TEST(Dialogues, OtherProgramsThanTheRecorded) {
  const TemplateModel m{"qwen2.5"};
  int diverged = 0;
  for (uint64_t program = 0; program < 40; ++program) {
    SCOPED_TRACE(program);
    Play play(m, program, program, /*stops=*/true, /*other=*/1 + program % 2);
    play.run();
    expect_each_token_once(play.session());
    diverged += play.session().diverged();
  }
  EXPECT_GT(diverged, 20);
}

/// A turn of some ids that nothing else has.
void answer(const TemplateModel& m, Session& session, const TurnStart& start, const std::string& text) {
  Response r;
  r.tokens = m.words.encode(text, /*add_special=*/false);
  r.tokens.push_back(m.end);
  r.mask.assign(r.tokens.size(), 1);
  r.logprobs.assign(r.tokens.size(), -1);
  r.versions = {{1, static_cast<int32_t>(r.tokens.size())}};
  r.finish = FinishReason::stop;
  session.sampled(start.turn, std::move(r), {.reasoning = "", .content = text, .calls = {}});
  session.delivered(start.turn);
}

constexpr int kMany = 1000;

/// Bytes of the record of a session, after so many of the requests that `next` makes from the one before.
int64_t record_of_many(const TemplateModel& m, int count, const std::function<void(TurnAsk&, int)>& next) {
  SessionSetup setup;
  setup.stop_token_ids = {m.end};
  setup.num_ids = m.words.vocab_size();
  Session session(setup, m.cut);
  TurnAsk ask{.messages = Json::array({message("user", "Begin.")})};
  double asking = 0;
  for (int i = 0; i < count; ++i) {
    const std::clock_t begin = std::clock();
    const TurnStart start = session.ask(ask);
    asking += static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    answer(m, session, start, fmt::format("answer {}", i));
    next(ask, i);
  }
  EXPECT_EQ(session.turns(), static_cast<size_t>(count));
  const std::clock_t begin = std::clock();
  const auto samples = session.samples();
  const double taking = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  fmt::print("{} requests: {:.0f} us each, {} samples in {:.0f} ms\n", count, 1e6 * asking / count,
             samples.size(), 1e3 * taking);
  EXPECT_LT(asking, 20);
  return std::ssize(session.record().dump());
}

/// Twice the requests: about twice the record, however long the histories that came with them.
void expect_linear(const TemplateModel& m, const std::function<void(TurnAsk&, int)>& next) {
  const int64_t half = record_of_many(m, kMany / 2, next), all = record_of_many(m, kMany, next);
  EXPECT_LT(all, half * 5 / 2);
}

TEST(Dialogues, AThousandRequestsOfOneSession) {
  const TemplateModel m{"qwen2.5"};
  expect_linear(m, [](TurnAsk& ask, int i) {  // a dialogue that grows
    ask.messages.push_back(message("assistant", fmt::format("answer {}", i)));
    ask.messages.push_back(message("user", fmt::format("More, {}.", i)));
  });
  expect_linear(m, [](TurnAsk&, int) {});     // the same again
  expect_linear(m, [](TurnAsk& ask, int i) {  // histories that were never ours
    ask.messages = Json::array({message("user", "Begin."), message("assistant", "No."),
                                message("user", fmt::format("Other, {}.", i))});
  });
  expect_linear(m, [](TurnAsk& ask, int i) { ask.tools = Json::array({{{"name", fmt::format("f{}", i)}}}); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

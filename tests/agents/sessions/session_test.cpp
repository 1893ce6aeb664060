// A session's rules, one by one, with a template of a few tags.

#include "src/agents/sessions/session.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "src/agents/turns/messages.h"
#include "src/rl/routes.h"

namespace temper {
namespace {

using Ids = std::vector<int32_t>;
using Kind = TurnStart::Kind;

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load("tests/golden/tokenizer/minimind");
  return loaded;
}
const ChatTemplate& chat() {
  static const ChatTemplate made(R"({% if tools %}<|im_start|>tools{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('no such message') }}{% endif
%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})",
                                 "test");
  return made;
}
const TurnCut& cut() {
  static const TurnCut made(tokenizer(), chat(), Json::object());
  return made;
}
int32_t end_id() { return *tokenizer().token_id("<|im_end|>"); }
Ids ids_of(const std::string& text) { return tokenizer().encode(text, /*add_special=*/false); }

Json message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}
Json user(const std::string& content) { return message("user", content); }
Json said(const std::string& content) { return message("assistant", content); }
TurnAsk ask(std::vector<Json> messages) { return {.messages = messages}; }

SessionSetup setup(SessionLimits limits = {}) {
  return {.seed = 7,
          .data_position = 3,
          .sample = 1,
          .line_prompt = cut().whole(Json::array({user("line")}), nullptr, nullptr),
          .stop_token_ids = {end_id()},
          .num_ids = tokenizer().vocab_size(),
          .limits = limits};
}

Response response(const std::string& text, bool stopped = true) {
  Response r;
  r.tokens = ids_of(text);
  r.text = text;
  if (stopped) r.tokens.push_back(end_id());
  r.finish = stopped ? FinishReason::stop : FinishReason::length;
  r.mask.assign(r.tokens.size(), 1);
  r.versions = {{5, static_cast<int32_t>(r.tokens.size())}};
  for (size_t i = 0; i < r.tokens.size(); ++i) r.logprobs.push_back(-1.0 - static_cast<double>(i));
  return r;
}

TurnText content(const std::string& text) { return {.reasoning = "", .content = text, .calls = {}}; }

void answer(Session& session, const TurnStart& start, const std::string& text, bool stopped = true) {
  session.sampled(start.turn, response(text, stopped), content(text));
  session.delivered(start.turn);
}
/// Asked, sampled and delivered.
TurnStart turn(Session& session, const TurnAsk& asked, const std::string& text, bool stopped = true) {
  TurnStart start = session.ask(asked);
  EXPECT_EQ(start.kind, Kind::sample);
  answer(session, start, text, stopped);
  return start;
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
int64_t trained(const SessionSample& s) {
  return std::accumulate(s.response.mask.begin(), s.response.mask.end(), int64_t{0});
}

void expect_refused(Session& session, const TurnAsk& asked, const std::string& where,
                    const std::string& words, const std::string& code = "") {
  const size_t before = session.turns();
  try {
    session.ask(asked);
    ADD_FAILURE() << "no refusal of " << words;
  } catch (const RequestError& e) {
    EXPECT_EQ(e.param(), where);
    EXPECT_NE(e.message().find(words), std::string::npos) << e.message();
    const auto* refusal = dynamic_cast<const Refusal*>(&e);
    EXPECT_EQ(refusal ? refusal->code() : "", code);
  }
  EXPECT_EQ(session.turns(), before);
}

TEST(Session, ATurnGoesOnFromWhatWasSampled) {
  Session session(setup(), cut());
  const TurnStart first = turn(session, ask({user("line")}), "a\n ");
  EXPECT_EQ(first.prompt, setup().line_prompt);
  EXPECT_EQ(first.seed, 7u);
  const TurnStart second = turn(session, ask({user("line"), said("a"), user("b")}), "c", /*stopped=*/false);
  EXPECT_EQ(second.prompt, joined({first.prompt,
                                   ids_of("a\n "),
                                   {end_id()},
                                   ids_of("\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n")}));
  EXPECT_NE(second.seed, 7u);
  const TurnStart third =
      turn(session, ask({user("line"), said("a"), user("b"), said(" c "), user("d")}), "e");
  EXPECT_EQ(third.prompt,
            joined({second.prompt, ids_of("c"),
                    ids_of("<|im_end|>\n<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\n")}));
  EXPECT_EQ(session.turn(2).parent, 1u);
  EXPECT_EQ(session.prompt(2), third.prompt);
  EXPECT_EQ(session.turn(2).prompt_tokens, std::ssize(third.prompt));
  session.end({.reason = EndReason::done, .reward = 1.0});

  const auto samples = session.samples();
  ASSERT_EQ(samples.size(), 1u);
  const SessionSample& s = samples[0];
  EXPECT_EQ(s.prompt_tokens, first.prompt);
  EXPECT_EQ(joined({s.prompt_tokens, s.response.tokens}), joined({third.prompt, ids_of("e"), {end_id()}}));
  EXPECT_EQ(s.turns, 3);
  EXPECT_EQ(s.response.text, "e");
  EXPECT_EQ(trained(s), session.sampled_tokens());
  for (size_t i = 0; i < s.response.mask.size(); ++i)
    EXPECT_EQ(s.response.mask[i] != 0, s.response.logprobs[i] != 0);
  EXPECT_EQ(s.response.versions,
            (std::vector<std::pair<int64_t, int32_t>>{{5, static_cast<int32_t>(s.response.tokens.size())}}));
}

TEST(Session, OneTurnIsTheResponseAsItIs) {
  Session session(setup(), cut());
  Response one = response("answer");
  one.versions = {{4, 1}, {5, 0}, {5, static_cast<int32_t>(one.tokens.size()) - 1}};
  const TurnStart start = session.ask(ask({user("line")}));
  session.sampled(start.turn, one, content("answer"));
  session.delivered(start.turn);
  const Response made = session.samples().at(0).response;
  EXPECT_EQ(made.tokens, one.tokens);
  EXPECT_EQ(made.mask, one.mask);
  EXPECT_EQ(made.logprobs, one.logprobs);
  EXPECT_EQ(made.versions, one.versions);
  EXPECT_EQ(made.text, one.text);
  EXPECT_EQ(made.finish, one.finish);
}

TEST(Session, ARewrittenHistoryForks) {
  Session session(setup(), cut());
  turn(session, ask({user("line")}), "a");
  turn(session, ask({user("line"), said("a"), user("b")}), "c");
  const TurnAsk rewritten = ask({user("line"), said("a"), user("b"), said("not ours"), user("d")});
  const TurnStart fork = turn(session, rewritten, "e");
  EXPECT_EQ(fork.prompt, cut().whole(rewritten.messages, nullptr, nullptr));
  TurnAsk more = rewritten;
  more.messages.push_back(said("e"));
  more.messages.push_back(user("f"));
  EXPECT_EQ(session.turn(turn(session, more, "g").turn).parent, 2u);
  TurnAsk tools = ask({user("line"), said("a"), user("x")});
  tools.tools = Json::array({{{"name", "f"}}});
  EXPECT_FALSE(session.turn(turn(session, tools, "g").turn).parent);  // other tools, another root
  const auto samples = session.samples();
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].prompt_tokens, setup().line_prompt);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(samples[i].fork, static_cast<int32_t>(i));
}

TEST(Session, SiblingsShareAPrefixThatOneOfThemTrains) {
  Session session(setup(), cut());
  const TurnStart first = turn(session, ask({user("line")}), "a");
  std::set<uint64_t> seeds{first.seed};
  for (const char* text : {"c", "d"})
    seeds.insert(turn(session, ask({user("line"), said("a"), user("b")}), text).seed);
  EXPECT_EQ(seeds.size(), 3u);
  EXPECT_EQ(session.turn(2).repetition, 1);
  const auto samples = session.samples();
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(trained(samples[0]), 4);
  EXPECT_EQ(trained(samples[1]), 2);
  EXPECT_EQ(samples[0].prompt_tokens, first.prompt);
  EXPECT_EQ(samples[1].prompt_tokens, session.prompt(2));  // the shared turn is prompt
  EXPECT_EQ(samples[1].turns, 2);
}

TEST(Session, WhatNobodyReceivedIsNotTrained) {
  Session session(setup(), cut());
  turn(session, ask({user("line")}), "a");
  const TurnStart lost = session.ask(ask({user("line"), said("a"), user("b")}));
  session.client_gone(lost.turn);
  session.sampled(lost.turn, response("c"), content("c"));
  const TurnStart under_way = session.ask(ask({user("x")}));
  TurnAsk title = ask({user("line"), said("a"), user("title?")});
  title.trained = false;
  turn(session, title, "t");
  const TurnStart last = session.ask(ask({user("line"), said("a"), user("d")}));
  session.sampled(last.turn, response("e"), content("e"));  // its client may have it
  session.end({});
  session.client_gone(last.turn);
  session.sampled(under_way.turn, response("y"), content("y"));  // too late
  const auto samples = session.samples();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].response.text, "e");
  EXPECT_EQ(trained(samples[0]), 4);
}

TEST(Session, UntrainedTurnsInAPathAreObservations) {
  Session session(setup(), cut());
  TurnAsk untrained = ask({user("line")});
  untrained.trained = false;
  EXPECT_NE(turn(session, untrained, "a").seed, 7u);
  turn(session, ask({user("line"), said("a"), user("b")}), "c");
  untrained = ask({user("line"), said("a"), user("b"), said("c"), user("d")});
  untrained.trained = false;
  turn(session, untrained, "e");
  turn(session, ask({user("line"), said("a"), user("b"), said("c"), user("d"), said("e"), user("f")}), "g");
  const auto samples = session.samples();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].prompt_tokens, session.prompt(1));
  EXPECT_EQ(trained(samples[0]), 4);
  EXPECT_EQ(joined({samples[0].prompt_tokens, samples[0].response.tokens}),
            joined({session.prompt(3), session.turn(3).response.tokens}));
}

TEST(Session, TheSameRequestAgain) {
  Session session(setup(), cut());
  const TurnAsk asked = ask({user("line")});
  const TurnStart first = session.ask(asked);
  EXPECT_EQ(session.ask(asked).kind, Kind::sample);  // its client is there: a sibling
  session.client_gone(first.turn);
  const TurnStart joined_it = session.ask(asked);
  EXPECT_EQ(joined_it.kind, Kind::join);
  EXPECT_EQ(joined_it.turn, first.turn);
  session.sampled(first.turn, response("a"), content("a"));
  session.client_gone(first.turn);  // in the middle of the answer
  const TurnStart once_more = session.ask(asked);
  EXPECT_EQ(once_more.kind, Kind::answered);
  EXPECT_EQ(once_more.turn, first.turn);
  session.delivered(first.turn);
  session.client_gone(first.turn);
  EXPECT_EQ(session.ask(asked).turn, 2u);  // another sibling
  TurnAsk marked = asked;
  marked.retry = true;
  EXPECT_EQ(session.ask(marked).turn, 1u);  // the first one that waits
  TurnAsk other = ask({user("line")});
  other.max_new_tokens = 5;
  EXPECT_EQ(session.ask(other).turn, 3u);
  marked.max_new_tokens = 6;
  EXPECT_EQ(session.ask(marked).turn, 4u);  // it never came before
}

TEST(Session, IdempotencyKeys) {
  Session session(setup(), cut());
  TurnAsk one = ask({user("line")}), two = one;
  one.idempotency_key = "1";
  two.idempotency_key = "2";
  EXPECT_EQ(session.ask(one).turn, 0u);
  session.client_gone(0);
  EXPECT_EQ(session.ask(two).turn, 1u);
  const TurnStart again = session.ask(one);
  EXPECT_EQ(again.turn, 0u);
  EXPECT_EQ(again.kind, Kind::join);
  two.retry = true;
  EXPECT_EQ(session.ask(two).turn, 1u);
}

TEST(Session, TokensIn) {
  Session session(setup(), cut());
  const auto ids = [](Ids prompt) { return TurnAsk{.prompt = std::move(prompt)}; };
  const TurnStart first = turn(session, ids(setup().line_prompt), "a");
  EXPECT_EQ(first.seed, 7u);
  const Ids path = joined({first.prompt, ids_of("a"), {end_id()}});
  const TurnStart second = turn(session, ids(joined({path, {1, 2, 3}})), "b");
  EXPECT_EQ(session.turn(1).parent, 0u);
  EXPECT_EQ(session.turn(1).behind, (Ids{1, 2, 3}));
  EXPECT_EQ(second.prompt, joined({path, {1, 2, 3}}));
  Ids other = path;
  other.back() = 9;
  turn(session, ids(joined({other, {1}})), "c");
  EXPECT_FALSE(session.turn(2).parent);
  // What a door with messages has sampled is known by its ids.
  const TurnStart spoken = turn(session, ask({user("hello")}), "d", /*stopped=*/false);
  turn(session, ids(joined({spoken.prompt, ids_of("d")})), "e");
  EXPECT_EQ(session.turn(4).parent, 3u);
  EXPECT_TRUE(session.turn(4).behind.empty());
  expect_refused(session, ids({}), "prompt", "empty");
  expect_refused(session, ids({1, tokenizer().vocab_size()}), "prompt", "ids are 0 to");
  expect_refused(session, ids({-1}), "prompt", "found -1");
  EXPECT_EQ(session.samples().size(), 3u);
}

TEST(Session, Refusals) {
  Session session(setup(), cut());
  expect_refused(session, ask({user("line"), said("a")}), "messages", "the last message");
  expect_refused(session, ask({user("refuse")}), "messages", "no such message");
  session.end({.reason = EndReason::late});
  expect_refused(session, ask({user("line")}), "session", "ended as late", "session_ended");
}

TEST(Session, Limits) {
  const auto line = std::ssize(setup().line_prompt);
  Session turns(setup({.turns = 2}), cut());
  turn(turns, ask({user("line")}), "a");
  const TurnStart last = turns.ask(ask({user("b")}));
  expect_refused(turns, ask({user("c")}), "session", "2 turns", "session_limit");
  turns.client_gone(last.turn);
  EXPECT_EQ(turns.ask(ask({user("b")})).kind, Kind::join);  // no turn more

  Session tokens(setup({.turn_tokens = 8, .session_tokens = 11}), cut());
  TurnAsk asked = ask({user("line")});
  asked.max_new_tokens = 3;
  EXPECT_EQ(tokens.ask(asked).max_new_tokens, 3);
  asked.max_new_tokens = 30;
  const TurnStart start = tokens.ask(asked);
  EXPECT_EQ(start.max_new_tokens, 8);
  tokens.sampled(start.turn, response("1234567"), content("1234567"));
  const int64_t left = 11 - tokens.sampled_tokens();
  ASSERT_GT(left, 0);
  const TurnStart rest = tokens.ask(ask({user("x")}));
  EXPECT_EQ(rest.max_new_tokens, left);
  tokens.sampled(rest.turn, response("a b c d e f g h i j k l"), content(""));
  expect_refused(tokens, ask({user("y")}), "session", "11 sampled tokens", "session_limit");

  Session context(setup({.context_tokens = line + 1}), cut());
  EXPECT_EQ(context.ask(ask({user("line")})).max_new_tokens, 1);
  try {
    context.ask(ask({user("line and more than that")}));
    FAIL();
  } catch (const Refusal& e) {
    EXPECT_TRUE(e.context_length());
    EXPECT_EQ(e.code(), "context_length_exceeded");
    EXPECT_GT(e.found, e.limit);
    EXPECT_EQ(e.limit, line + 1);
  }
  Session open(setup(), cut());
  EXPECT_EQ(open.ask(ask({user("line")})).max_new_tokens, 0);
}

TEST(Session, CallsHaveIdsOfTheirTurn) {
  Session session(setup(), cut()), same(setup(), cut());
  const TurnText calls{.reasoning = "",
                       .content = "",
                       .calls = {{"f", {{"x", 1}}, "{\"x\": 1}"}, {"f", {{"x", 1}}, "{\"x\": 1}"}}};
  std::set<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    const TurnStart start = session.ask(ask({user("line")}));
    session.sampled(start.turn, response("call"), calls);
    session.delivered(start.turn);
    for (size_t call = 0; call < 2; ++call) {
      const std::string id = session.turn(start.turn).answer["tool_calls"][call]["id"];
      EXPECT_EQ(id, session.call_id(start.turn, call));
      EXPECT_EQ(id.size(), 9u);
      ids.insert(id);
    }
  }
  EXPECT_EQ(ids.size(), 4u);
  same.ask(ask({user("line")}));
  EXPECT_EQ(same.call_id(0, 1), session.call_id(0, 1));
  EXPECT_EQ(same.turn(0).key, session.turn(0).key);
  // Both answers say the same: ids of calls tell which of them a history has.
  const Json result{{"role", "tool"}, {"content", "2"}, {"tool_call_id", session.call_id(1, 0)}};
  session.ask(ask({user("line"), session.turn(1).answer, result}));
  EXPECT_EQ(session.turn(2).parent, 1u);
}

TEST(Session, ThoughtsThatAClientLeavesOut) {
  Session session(setup(), cut());
  for (const char* thought : {"so", "or so"}) {
    const TurnStart start = session.ask(ask({user("line")}));
    session.sampled(start.turn, response(thought), {.reasoning = thought, .content = "a", .calls = {}});
    session.delivered(start.turn);
  }
  Json with = said("a");
  with["reasoning_content"] = "or so";
  session.ask(ask({user("line"), with, user("b")}));
  EXPECT_EQ(session.turn(2).parent, 1u);
  session.ask(ask({user("line"), said("a"), user("b")}));
  EXPECT_EQ(session.turn(3).parent, 0u);
}

TEST(Session, RoutesOfAPathAreThoseOfItsTurns) {
  const RouteShape shape{.layers = 1, .experts = 300, .chosen = 1};
  Session session(setup(), cut());
  int32_t next = 0;
  Routes all = make_routes(shape);
  const auto routed = [&](const TurnAsk& asked, const std::string& text) {
    const TurnStart start = session.ask(asked);
    Response r = response(text);
    r.routes = all;  // what the path before has
    const auto rows = std::ssize(start.prompt) + std::ssize(r.tokens) - 1;
    while (route_rows(r.routes) < rows) append_route(r.routes, std::vector{next++});
    all = r.routes;
    session.sampled(start.turn, r, content(text));
    session.delivered(start.turn);
  };
  routed(ask({user("line")}), "a");
  routed(ask({user("line"), said("a"), user("b")}), "c");
  EXPECT_LT(session.turn(1).response.routes.size(), all.size());
  EXPECT_EQ(session.samples().at(0).response.routes, all);
}

TEST(Session, Requests) {
  Session session(setup(), cut());
  turn(session, ask({message("system", "s"), user("line")}), "a");
  turn(session, ask({message("system", "s"), user("line"), said("a"), user("b")}), "c");
  turn(session, ask({message("system", "s"), user("line"), said("x"), user("y")}), "z");
  turn(session, {.prompt = Ids{1, 2}}, "t");
  EXPECT_EQ(session.requests().dump(), Json::parse(R"([
    {"turn": 0, "known": 0, "tools": null, "arguments": null,
     "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "line"}]},
    {"turn": 1, "parent": 0, "known": 3, "of": 0, "messages": [{"role": "user", "content": "b"}]},
    {"turn": 2, "ids": [1, 2]},
    {"turn": 3, "known": 2, "of": 0,
     "messages": [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]}])")
                                           .dump());
}

Json through_text(const Json& record) { return parse_json(dump_json_line(record), "record"); }

TEST(Session, GoesOnFromARecord) {
  Session session(setup(), cut());
  turn(session, ask({user("line")}), "a");
  const TurnStart first = session.ask(ask({user("line"), said("a"), user("b")}));
  Response half = response("cc");
  half.finish = FinishReason::unfinished;
  session.begun(first.turn, half);

  Session again(setup(), cut(), through_text(session.record()));
  EXPECT_TRUE(again.samples().empty());
  EXPECT_EQ(again.ask(ask({user("line")})).kind, Kind::answered);
  again.delivered(0);
  const TurnStart second = again.ask(ask({user("line"), said("a"), user("b")}));
  EXPECT_EQ(second.kind, Kind::sample);
  EXPECT_EQ(second.turn, first.turn);
  EXPECT_EQ(second.seed, first.seed);
  EXPECT_EQ(second.prompt, first.prompt);
  ASSERT_TRUE(second.begun);
  EXPECT_EQ(second.begun->tokens, half.tokens);
  EXPECT_EQ(second.begun->logprobs, half.logprobs);
  answer(again, second, "ccd");
  turn(again, ask({user("line"), said("a"), user("b"), said("ccd"), user("e")}), "f");
  EXPECT_FALSE(again.diverged());
  EXPECT_EQ(again.samples().size(), 1u);
}

TEST(Session, DivergesFromARecord) {
  Session session(setup(), cut());
  turn(session, ask({user("line")}), "a");
  turn(session, ask({user("line"), said("a"), user("b")}), "c");
  Session again(setup(), cut(), through_text(session.record()));
  EXPECT_EQ(again.ask(ask({user("line")})).kind, Kind::answered);
  EXPECT_FALSE(again.diverged());
  turn(again, ask({user("line"), said("a"), user("another")}), "d");
  EXPECT_TRUE(again.diverged());
  const auto samples = again.samples();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].response.text, "d");
  EXPECT_EQ(trained(samples[0]), 4);
}

TEST(Session, AnEndedOneComesBackAsItWas) {
  Session session(setup(), cut());
  turn(session, ask({user("line")}), "a");
  session.client_gone(session.ask(ask({user("b")})).turn);
  session.end({.reason = EndReason::limit, .reward = 0.5, .parts = {{"x", 1.5}}});
  Session again(setup(), cut(), through_text(session.record()));
  ASSERT_TRUE(again.ended());
  EXPECT_EQ(again.ended()->reason, EndReason::limit);
  EXPECT_EQ(again.ended()->reward, 0.5);
  EXPECT_EQ(again.ended()->parts, session.ended()->parts);
  ASSERT_EQ(again.samples().size(), 1u);
  EXPECT_EQ(again.samples()[0].response.logprobs, session.samples()[0].response.logprobs);
  EXPECT_EQ(again.requests(), session.requests());
  EXPECT_EQ(again.record(), session.record());
}

TEST(Session, RecordsThatAreNone) {
  Session session(setup(), cut());
  turn(session, ask({user("line")}), "a");
  turn(session, ask({user("line"), said("a"), user("b")}), "c");
  const Json record = session.record();
  const std::vector<std::pair<std::string, Json>> wrong = {{"/turns/1/parent", 1},
                                                           {"/turns/1/parent", "x"},
                                                           {"/turns/0/response/tokens", Json::array()},
                                                           {"/turns/0/node", 99},
                                                           {"/turns/0/response/mask", {1}},
                                                           {"/turns/0/behind", Json::array()},
                                                           {"/turns/0/answer", 5},
                                                           {"/turns/0/response/tokens/0", ""},
                                                           {"/messages/1/above", 1},
                                                           {"/messages/1/message", {}},
                                                           {"/messages/2/turn", 7},
                                                           {"/messages/2/answers", {8}},
                                                           {"/messages/0/message", 1},
                                                           {"/end", {{"reason", "bored"}}},
                                                           {"/turns", nullptr},
                                                           {"/turns/1/seed", "x"},
                                                           {"/messages/1/message/role", 3}};
  for (const auto& [where, value] : wrong) {
    Json broken = record;
    broken[Json::json_pointer(where)] = value;
    try {
      Session(setup(), cut(), broken);
      ADD_FAILURE() << where;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::data) << where;
    }
  }
  for (const Json& none : {Json(), Json(1), Json::array(), Json::object()})
    EXPECT_THROW(Session(setup(), cut(), none), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

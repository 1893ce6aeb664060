// The server of sessions before a stub of the engine: clients that leave and come again, answers that several
// want, turns that the engine does not take, limits. What counts is the same however fast the engine is.

#include "src/agents/doors/chat_door.h"
#include "src/agents/doors/messages_door.h"
#include "tests/agents/service/rig.h"

namespace temper {
namespace {

std::string content(const ClientAnswer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.status == 200
             ? Json::parse(answer.body)["choices"][0]["message"]["content"].get<std::string>()
             : answer.body;
}

/// The texts of a stream's deltas.
std::string streamed(const std::string& events) {
  std::string text;
  for (size_t at = 0; (at = events.find("data: {", at)) != events.npos; ++at) {
    const Json chunk = Json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
    if (!chunk["choices"].empty()) text += chunk["choices"][0]["delta"].value("content", "");
  }
  return text;
}

TEST(SessionLane, WhoLeftBeforeTheAnswerHasNotGotIt) {
  for (const double engine_seconds : {0.0, 0.3}) {
    for (const bool stream : {false, true}) {
      SessionRig rig;
      Client leaves(rig.port());
      leaves.write(rig.chat({{"messages", Json::array({user("one")})}, {"stream", stream}}));
      const DeskNumber number = rig.asked(1)[0].first;
      if (stream) rig.grow(number, "an an");
      leaves.close();
      std::this_thread::sleep_for(std::chrono::duration<double>(engine_seconds));
      rig.finish(number, "an answer");
      Client stays(rig.port());
      stays.write(rig.say("two"));
      rig.finish(rig.asked(1)[0].first, "another");
      EXPECT_EQ(content(stays.read()), "another");
      const SessionResult result = rig.end();
      ASSERT_EQ(result.samples.size(), 1u) << engine_seconds << stream;
      EXPECT_EQ(result.samples[0].response.text, "another");
    }
  }
}

/// The rig's template shows none, and a client would wait in vain for a call.
TEST(SessionLane, ToolsThatTheTemplateDoesNotShowAreRefusedByName) {
  SessionRig rig;
  Client client(rig.port());
  const Json schema{{"type", "object"}, {"properties", Json::object()}};
  const Json function{{"type", "function"}, {"function", {{"name", "add"}, {"parameters", schema}}}};
  client.write(rig.chat({{"messages", Json::array({user("one")})}, {"tools", Json::array({function})}}));
  const ClientAnswer answer = client.read();
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "tools") << answer.body;
  EXPECT_NE(answer.body.find("no place for tools: 1 tool would be left out"), std::string::npos)
      << answer.body;
  const Json plain{{"name", "add"}, {"input_schema", schema}};
  client.write(rig.request("/v1/messages", Json{{"model", "policy"},
                                                {"max_tokens", 5},
                                                {"messages", Json::array({user("one")})},
                                                {"tools", Json::array({plain})}}
                                               .dump()));
  const ClientAnswer other = client.read();
  EXPECT_EQ(other.status, 400) << other.body;
  EXPECT_NE(other.body.find("tools: "), std::string::npos) << other.body;
  client.write(rig.chat({{"messages", Json::array({user("one")})}, {"tools", Json::array()}}));
  rig.finish(rig.asked(1)[0].first, "without");
  EXPECT_EQ(content(client.read()), "without");
}

/// Without any mark: its client is gone, so the next equal request is the same one again.
TEST(SessionLane, TheSameAgainGetsTheAnswerOfWhoLeft) {
  for (const bool finished : {false, true}) {
    SessionRig rig;
    Client leaves(rig.port());
    leaves.write(rig.say("one"));
    const DeskNumber number = rig.asked(1)[0].first;
    leaves.close();
    if (finished) rig.finish(number, "the answer");
    Client again(rig.port());
    again.write(rig.say("one"));
    EXPECT_TRUE(rig.asks_nothing(0.1)) << finished;
    if (!finished) rig.finish(number, "the answer");
    EXPECT_EQ(content(again.read()), "the answer");
    EXPECT_EQ(rig.end().samples.size(), 1u);
  }
}

/// What was found of a turn's prompt is told to its client, and to the one that gets the answer again; what
/// the turn before it had computed and is not found counts as computed again.
TEST(SessionLane, TellsWhatWasFoundInPages) {
  SessionRig rig;
  const auto cached = [](const ClientAnswer& answer) {
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["usage"]["prompt_tokens_details"]["cached_tokens"];
  };
  const auto turn = [&](const std::string& body, int64_t found) {
    Client client(rig.port());
    client.write(body);
    const auto [number, request] = std::move(rig.asked(1)[0]);
    rig.grow(number, "one, two", found);
    rig.finish(number, "one, two");
    EXPECT_EQ(cached(client.read()), found);
    return std::ssize(request.prompt);
  };
  const Json first = Json::array({user("one")});
  const int64_t prompt = turn(rig.chat({{"messages", first}}), 5);
  Client again(rig.port());
  again.write(rig.chat({{"messages", first}}, "x-stainless-retry-count: 1\r\n"));
  EXPECT_EQ(cached(again.read()), 5);
  auto counts = rig.service().take_counts();
  EXPECT_EQ(counts["rollout/turn_rows"], prompt);
  EXPECT_EQ(counts["rollout/turn_rows_found"], 5);
  EXPECT_EQ(counts["rollout/turn_rows_again"], 0);
  const int64_t said = std::ssize(rig.tokens("one, two")) + 1;
  const Json second =
      Json::array({user("one"), {{"role", "assistant"}, {"content", "one, two"}}, user("three")});
  turn(rig.chat({{"messages", second}}), 7);
  counts = rig.service().take_counts();
  EXPECT_EQ(counts["rollout/turn_rows_found"], 7);
  EXPECT_EQ(counts["rollout/turn_rows_again"], prompt + said - 1 - 7) << "the last token was never fed";
}

TEST(SessionLane, WhoComesBackInTheMiddleOfAStreamHearsItFromItsBegin) {
  SessionRig rig;
  const Json body{{"messages", Json::array({user("one")})}, {"stream", true}};
  Client leaves(rig.port());
  leaves.write(rig.chat(body));
  const DeskNumber number = rig.asked(1)[0].first;
  rig.grow(number, "the first half, ");
  std::string piece;
  EXPECT_EQ(leaves.read_head().status, 200);
  EXPECT_TRUE(leaves.chunk(piece));
  leaves.close();
  Client again(rig.port());
  again.write(rig.chat(body, "x-stainless-retry-count: 1\r\n"));
  EXPECT_TRUE(rig.asks_nothing(0.1));
  rig.grow(number, "and the second");
  rig.finish(number, "the first half, and the second");
  EXPECT_EQ(streamed(again.read().body), "the first half, and the second");
}

TEST(SessionLane, AnAnswerOfSeveralIsAskedAgainAsAWhole) {
  SessionRig rig;
  const Json body{{"messages", Json::array({user("one")})}, {"n", 2}};
  Client leaves(rig.port());
  leaves.write(rig.chat(body, "idempotency-key: k\r\n"));
  const auto first = rig.asked(2);
  EXPECT_NE(first[0].second.own->seed, first[1].second.own->seed);
  Client again(rig.port());
  again.write(rig.chat(body, "idempotency-key: k\r\nx-stainless-retry-count: 1\r\n"));
  EXPECT_TRUE(rig.asks_nothing(0.1));
  rig.finish(first[0].first, "red");
  rig.finish(first[1].first, "green");
  for (Client* client : {&leaves, &again}) {
    const Json choices = Json::parse(client->read().body)["choices"];
    EXPECT_EQ(choices[0]["message"]["content"], "red");
    EXPECT_EQ(choices[1]["message"]["content"], "green");
  }
}

TEST(SessionLane, WhereOneOfSeveralAnswersIsRefusedNoneIsAskedFor) {
  SessionRig rig({.turns = 2});
  Client client(rig.port());
  client.write(rig.chat({{"messages", Json::array({user("one")})}, {"n", 3}}));
  EXPECT_EQ(client.read().status, 400);
  EXPECT_TRUE(rig.asks_nothing(0.1));
  client.write(rig.say("one"));
  rig.finish(rig.asked(1)[0].first, "an answer");
  EXPECT_EQ(content(client.read()), "an answer");
  const SessionResult result = rig.end();
  ASSERT_EQ(result.samples.size(), 1u);
  EXPECT_EQ(result.samples[0].turns, 1);
}

/// Over HTTP and over the pipe; whoever asks the same again is told so, and does not wait for ever.
TEST(SessionLane, WhatTheEngineDoesNotTakeIsSaid) {
  SessionRig rig;
  for (int i = 0; i < 2; ++i) {
    Client client(rig.port());
    client.write(rig.say("an image"));
    rig.refuse(rig.asked(1)[0].first, "the prompt holds an image");
    const ClientAnswer answer = client.read(2);
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.body.find("holds an image"), std::string::npos) << answer.body;
  }
  std::atomic<bool> told = false;
  rig.service().ask(rig.number(), Json::array({user("an image, by pipe")}), [&](const PipeAnswer& answer) {
    EXPECT_EQ(answer.refused, "the prompt holds an image");
    EXPECT_FALSE(answer.at_limit);
    told = true;
  });
  rig.refuse(rig.asked(1)[0].first, "the prompt holds an image");
  EXPECT_TRUE(becomes([&] { return told.load(); }, 2));
  EXPECT_TRUE(rig.end().samples.empty());
}

TEST(SessionLane, ASessionThatWantedMoreThanItsLimitEndsByIt) {
  for (const EndReason reason : {EndReason::done, EndReason::died}) {
    SessionRig rig({.turns = 1});
    Client client(rig.port());
    client.write(rig.say("one"));
    rig.finish(rig.asked(1)[0].first, "an answer");
    EXPECT_EQ(client.read().status, 200);
    client.write(rig.say("two"));
    EXPECT_EQ(Json::parse(client.read().body)["error"]["code"], "session_limit");
    std::atomic<bool> told = false;
    rig.service().ask(rig.number(), Json::array({user("three")}), [&](const PipeAnswer& answer) {
      EXPECT_TRUE(answer.at_limit);
      told = true;
    });
    EXPECT_TRUE(becomes([&] { return told.load(); }));
    const SessionResult result = rig.end(reason);
    EXPECT_EQ(result.end.reason, reason == EndReason::done ? EndReason::limit : reason);
    EXPECT_EQ(result.end.reward, 1.0);
  }
}

Response said(const Tokenizer& tokenizer, const std::string& text) {
  Response r;
  r.tokens = tokenizer.encode(text, /*add_special=*/false);
  r.text = text;
  r.finish = FinishReason::stop;
  r.mask.assign(r.tokens.size(), 1);
  r.logprobs.assign(r.tokens.size(), -0.5);
  r.versions = {{0, static_cast<int32_t>(r.tokens.size())}};
  return r;
}

/// A turn may wait for the next step of the run. A client that wants a stream hears meanwhile, each ten
/// seconds of the clock that the test has, that its answer is on its way; any other one waits, and both get
/// it whole.
TEST(OpenAnswer, WhoWaitsKeepsItsConnection) {
  const Tokenizer tokenizer = Tokenizer::load("tests/golden/tokenizer/minimind");
  const ChatDoor chat(tokenizer);
  const MessagesDoor messages;
  const std::pair<const Door*, std::string> doors[] = {
      {&chat, ": keep-alive\n\n"}, {&messages, "event: ping\ndata: {\"type\": \"ping\"}\n\n"}};
  for (const auto& [door, sign] : doors)
    for (const bool stream : {true, false}) {
      TestServer server;
      Client client(server.port());
      client.write(get("/later", kKey));
      Exchange exchange = server.inbox.take();
      ASSERT_NE(exchange, nullptr);
      const DoorRequest request{.model = "policy", .messages = Json::array({user("one")}), .stream = stream};
      OpenAnswer answer(std::move(exchange), *door, request, {.id = "a", .prompt = {1, 2}, .choices = {}},
                        TurnFormat{});
      const auto begin = OpenAnswer::Clock::now();
      for (const int seconds : {5, 11, 15, 22}) answer.tick(begin + std::chrono::seconds(seconds));
      answer.grow(0, {.tokens = tokenizer.encode("an answer", false), .logprobs = {}, .text = "an answer"});
      answer.finish(0, said(tokenizer, "an answer"));
      const ClientAnswer heard = client.read();
      EXPECT_EQ(heard.status, 200);
      EXPECT_NE(heard.body.find("an answer"), std::string::npos) << heard.body;
      size_t signs = 0;
      for (size_t at = 0; (at = heard.body.find(sign, at)) != std::string::npos; ++at) ++signs;
      EXPECT_EQ(signs, stream ? 2u : 0u) << heard.body;
      EXPECT_TRUE(becomes([&] { return answer.delivered(); }));
    }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// Anthropic's messages in the form of chat completions, and turns in theirs: bodies as Claude Code and
// anthropic's client send them.

#include "src/agents/turns/anthropic.h"

#include <gtest/gtest.h>

#include "src/agents/turns/messages.h"
#include "src/agents/turns/request_error.h"

namespace temper {
namespace {

Json chat(const std::string& body) { return anthropic::chat_request(parse_json(body, "body")); }

void expect_messages(const std::string& body, const std::string& expected) {
  EXPECT_EQ(chat(body)["messages"].dump(), parse_json(expected, "expected").dump()) << body;
}

TEST(Anthropic, SystemAndContent) {
  expect_messages(
      R"({"system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=ab12;"},
                       {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
                       {"type": "text", "text": "Be brief."}],
                      "messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                       {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]}]})",
      R"([{"role": "system", "content": "You are an agent.\nBe brief."},
                      {"role": "user", "content": "a\nb"}])");
  expect_messages(R"({"system": "S", "messages": [{"role": "user", "content": "a"}]})",
                  R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a"}])");
  expect_messages(R"({"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1"}],
                      "messages": [{"role": "ctx", "content": "a"}, {"role": "msg", "content": []}]})",
                  R"([{"role": "user", "content": "a"}, {"role": "user", "content": ""}])");
}

TEST(Anthropic, CallsAndResults) {
  expect_messages(R"({"messages": [{"role": "user", "content": "go"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "why", "signature": ""},
       {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Two."},
       {"type": "tool_use", "id": "c1", "name": "Read", "input": {"file": "a"}},
       {"type": "tool_use", "id": "c2", "name": "Bash", "input": {}}]},
      {"role": "user", "content": [{"type": "text", "text": "and then"},
       {"type": "tool_result", "tool_use_id": "c1", "content": "1", "is_error": false},
       {"type": "tool_result", "tool_use_id": "c2", "is_error": true,
        "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}]},
       {"type": "text", "text": "go on"}]}]})",
                  R"([{"role": "user", "content": "go"},
      {"role": "assistant", "content": "Two.", "reasoning_content": "why", "tool_calls": [
       {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": {"file": "a"}}},
       {"id": "c2", "type": "function", "function": {"name": "Bash", "arguments": {}}}]},
      {"role": "tool", "content": "1", "tool_call_id": "c1"},
      {"role": "tool", "content": "2\n3", "tool_call_id": "c2"},
      {"role": "user", "content": "and then\ngo on"}])");
  expect_messages(
      R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": null},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}]})",
      R"([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": ""},
                      {"role": "tool", "content": "", "tool_call_id": "c1"}])");
}

TEST(Anthropic, SystemMessagesInTheMiddleAreFolded) {
  expect_messages(R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "S"},
                       {"role": "system", "content": [{"type": "text", "text": "T"}]}]})",
                  R"([{"role": "user", "content": "a\n\nS\n\nT"}])");
  // Between calls and their results there is none.
  expect_messages(R"({"messages": [{"role": "user", "content": "a"},
       {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
       {"role": "system", "content": "S"}, {"role": "system", "content": "T"},
       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "1"}]},
       {"role": "system", "content": "U"}]})",
                  R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [
       {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}]},
       {"role": "tool", "content": "1\n\nS\n\nT\n\nU", "tool_call_id": "c1"}])");
  expect_messages(
      R"({"system": "R", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
                       {"role": "assistant", "content": "b"}, {"role": "system", "content": "T"}]})",
      R"([{"role": "system", "content": "R\n\nS"}, {"role": "user", "content": "a"},
                      {"role": "assistant", "content": "b"}, {"role": "user", "content": "T"}])");
}

TEST(Anthropic, FieldsOfTheRequest) {
  const Json made =
      chat(R"({"model": "policy", "max_tokens": 32000, "stream": true, "temperature": 1, "top_k": 5,
      "metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"}, "context_management": {"edits": []},
      "stop_sequences": ["END"], "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
      "messages": [{"role": "user", "content": "a"}],
      "tools": [{"name": "Read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}},
                 "cache_control": {"type": "ephemeral"}},
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
                {"name": "Bash", "input_schema": {"type": "object"}}]})");
  EXPECT_EQ(made.dump(), Json::parse(R"({"messages": [{"role": "user", "content": "a"}], "model": "policy",
      "max_tokens": 32000, "stream": true, "temperature": 1, "top_k": 5, "tools": [
       {"type": "function", "function": {"name": "Read", "description": "Reads.",
        "parameters": {"type": "object", "properties": {}}}},
       {"type": "function", "function": {"name": "Bash", "parameters": {"type": "object"}}}],
      "tool_choice": "auto", "stop": ["END"]})")
                             .dump());
  const auto choice = [](const std::string& given) {
    return chat(R"({"messages": [{"role": "user"}], "tools": [], "tool_choice": )" + given +
                "}")["tool_choice"]
        .dump();
  };
  EXPECT_EQ(choice(R"({"type": "any"})"), R"("required")");
  EXPECT_EQ(choice(R"({"type": "none"})"), R"("none")");
  EXPECT_EQ(choice(R"({"type": "tool", "name": "f"})"), R"({"type":"function","function":{"name":"f"}})");
  EXPECT_FALSE(
      chat(R"({"messages": [{"role": "user"}], "tools": [{"type": "web_search"}]})").contains("tools"));
}

TEST(Anthropic, RefusesWithTheField) {
  const auto refused = [](const std::string& body, const std::string& param, const std::string& words) {
    try {
      ADD_FAILURE() << body << " gave " << chat(body).dump();
    } catch (const RequestError& e) {
      EXPECT_EQ(e.param(), param) << body;
      EXPECT_NE(e.message().find(words), std::string::npos) << e.message();
    }
  };
  const auto content = [](const std::string& role, const std::string& blocks) {
    return R"({"messages": [{"role": ")" + role + R"(", "content": )" + blocks + "}]}";
  };
  refused("[]", "body", "an array");
  refused("{}", "messages", "null");
  refused(R"({"messages": []})", "messages", "empty");
  refused(R"({"messages": [3]})", "messages[0]", "a number");
  refused(R"({"messages": [{"content": "a"}]})", "messages[0].role", "null");
  refused(R"({"system": 3, "messages": []})", "system", "a number");
  refused(content("user", "3"), "messages[0].content", "a number");
  refused(content("user", "[3]"), "messages[0].content[0]", "a number");
  refused(content("user", R"([{"type": "image", "source": {}}])"), "messages[0].content[0].type",
          "\"image\"");
  refused(content("user", R"([{"type": "tool_result", "content": "1"}])"),
          "messages[0].content[0].tool_use_id", "null");
  refused(content("user", R"([{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image"}]}])"),
          "messages[0].content[0].content[0].type", "\"image\"");
  refused(content("assistant", R"([{"type": "text"}])"), "messages[0].content[0].text", "null");
  refused(content("assistant", R"([{"type": "tool_use", "id": "c", "name": "f", "input": []}])"),
          "messages[0].content[0].input", "an array");
  refused(content("assistant", R"([{"type": "server_tool_use"}])"), "messages[0].content[0].type",
          "server_tool_use");
  refused(R"({"messages": [{"role": "user"}], "tools": {}})", "tools", "an object");
  refused(R"({"messages": [{"role": "user"}], "tools": [{"input_schema": {}}]})", "tools[0].name", "null");
  refused(R"({"messages": [{"role": "user"}], "tool_choice": "auto"})", "tool_choice", "a string");
}

const TurnText kTurn{
    .reasoning = "why",
    .content = "Two.",
    .calls = {{"Read", {{"file", "a"}}, R"({"file": "a"})"}, {"Bash", Json::object(), "{}"}}};

TEST(Anthropic, Answers) {
  const Json made = anthropic::answer("msg_1", "policy", anthropic::content_blocks(kTurn, {"c1", "c2"}),
                                      {"tool_calls"}, {.prompt = 100, .cached = 60, .turn = 7});
  EXPECT_EQ(
      made.dump(),
      Json::parse(R"({"id": "msg_1", "type": "message", "role": "assistant", "model": "policy", "content": [
      {"type": "thinking", "thinking": "why", "signature": ""}, {"type": "text", "text": "Two."},
      {"type": "tool_use", "id": "c1", "name": "Read", "input": {"file": "a"}},
      {"type": "tool_use", "id": "c2", "name": "Bash", "input": {}}],
      "stop_reason": "tool_use", "stop_sequence": null,
      "usage": {"input_tokens": 40, "cache_read_input_tokens": 60, "output_tokens": 7}})")
          .dump());
  const auto ended = [](const anthropic::Ending& ending) {
    return anthropic::answer("m", "p", Json::array(), ending, {})["stop_reason"].get<std::string>();
  };
  EXPECT_EQ(ended({"stop"}), "end_turn");
  EXPECT_EQ(ended({"length"}), "max_tokens");
  EXPECT_EQ(ended({"stop", "END"}), "stop_sequence");
  EXPECT_EQ(anthropic::error("invalid_request_error", "no").dump(),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"no"}})");
}

/// What a client makes of a stream.
Json assembled(const std::vector<anthropic::Event>& events) {
  Json message;
  for (const anthropic::Event& event : events) {
    EXPECT_EQ(event.data["type"], event.name);
    const Json& data = event.data;
    if (event.name == "message_start") message = data["message"];
    if (event.name == "content_block_start") {
      EXPECT_EQ(data["index"], message["content"].size());
      message["content"].push_back(data["content_block"]);
    }
    if (event.name == "content_block_delta") {
      EXPECT_EQ(data["index"].get<size_t>() + 1, message["content"].size());
      Json& block = message["content"].back();
      const Json& delta = data["delta"];
      for (const char* field : {"text", "thinking"})
        if (delta["type"] == std::string(field) + "_delta")
          block[field].get_ref<std::string&>() += delta[field];
      if (delta["type"] == "input_json_delta")
        block["input"] = Json::parse(delta["partial_json"].get<std::string>());
    }
    if (event.name != "message_delta") continue;
    for (const auto& [key, value] : data["delta"].items()) message[key] = value;
    for (const auto& [key, value] : data["usage"].items()) message["usage"][key] = value;
  }
  return message;
}

TEST(Anthropic, StreamsSayWhatAnswersDo) {
  const anthropic::Usage before{.prompt = 100, .cached = 60}, after{.prompt = 100, .cached = 60, .turn = 7};
  anthropic::Events made;
  std::vector<anthropic::Event> events = made.begin("msg_1", "policy", before);
  EXPECT_EQ(events[0].data["message"]["usage"]["input_tokens"], 40);
  const auto add = [&](std::vector<anthropic::Event> more) {
    std::move(more.begin(), more.end(), std::back_inserter(events));
  };
  add(made.add({.reasoning = "wh"}, {}));
  add(made.add({}, {}));
  add(made.add({.reasoning = "y", .content = "Tw"}, {}));
  add(made.add({.content = "o.", .calls = {kTurn.calls[0]}}, {"c1"}));
  add(made.add({.calls = {kTurn.calls[1]}}, {"c2"}));
  add(made.end({"tool_calls"}, after));
  EXPECT_EQ(assembled(events).dump(),
            anthropic::answer("msg_1", "policy", anthropic::content_blocks(kTurn, {"c1", "c2"}),
                              {"tool_calls"}, after)
                .dump());
  int64_t open = 0;
  for (const anthropic::Event& event : events) {
    open += (event.name == "content_block_start") - (event.name == "content_block_stop");
    EXPECT_TRUE(open == 0 || open == 1);
  }
  EXPECT_EQ(open, 0);
  EXPECT_EQ(events.back().name, "message_stop");
}

/// What was said comes back as what it was, streamed or not, whatever stands around its calls.
TEST(Anthropic, TurnsComeBackAsTheyWere) {
  TurnFormat format{.calls = CallSyntax::json_tags};
  format.think_open = "<think>", format.think_close = "</think>";
  const Json tools = Json::array({Json::object()});
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1.0, \"a\": \"x\"}}\n</tool_call>";
  const std::vector<std::string> said{"Hi.",
                                      "<think>\nwhy\n</think>\n\nHi.\n",
                                      "So.\n" + call,
                                      call + call,
                                      call + "\nDone.",
                                      "So.\n" + call + "\nAnd\n" + call + "\n\nDone.\n",
                                      std::string(),
                                      std::string("<think>\nwhy")};
  for (const std::string& text : said) {
    const TurnText turn = parse_turn(text, format, tools);
    const auto ids = [](size_t begin, size_t count) {
      std::vector<std::string> made;
      for (size_t i = 0; i < count; ++i) made.push_back(fmt::format("c{}", begin + i));
      return made;
    };
    const Json known = turn_message(turn, ids(0, turn.calls.size()));
    TurnStream stream(format, tools);
    anthropic::Events events;
    std::vector<anthropic::Event> all = events.begin("m", "p", {});
    size_t calls = 0;
    const auto add = [&](const TurnText& delta) {
      for (anthropic::Event& e : events.add(delta, ids(calls, delta.calls.size())))
        all.push_back(std::move(e));
      calls += delta.calls.size();
    };
    for (const char c : text) add(stream.feed(std::string_view(&c, 1)));
    add(stream.end());
    for (anthropic::Event& e : events.end({"stop"}, {})) all.push_back(std::move(e));
    for (const Json& blocks :
         {anthropic::content_blocks(turn, ids(0, turn.calls.size())), assembled(all)["content"]}) {
      const Json back =
          anthropic::chat_request({{"messages", {{{"role", "assistant"}, {"content", blocks}}}}});
      EXPECT_TRUE(same_message(known, back["messages"][0])) << known.dump() << "\n" << back.dump();
    }
  }
}

/// Requests of one session of Claude Code extend each other, though the form of their messages changes.
TEST(Anthropic, RequestsOfASessionExtendEachOther) {
  const std::string call = R"({"role": "assistant", "content": [{"type": "text", "text": "I look."},
      {"type": "tool_use", "id": "c1", "name": "Read", "input": {"file": "a", "limit": 10}}]})";
  const auto request = [](const std::string& billing, const std::string& messages) {
    return chat(R"({"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=)" + billing +
                R"("}, {"type": "text", "text": "S"}], "messages": [)" + messages + "]}");
  };
  const Json first = request("1", R"({"role": "user", "content": [
      {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]})");
  const Json second = request("2", R"({"role": "user", "content": "go"}, )" + call + R"(, {"role": "user",
      "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "text",
                   "cache_control": {"type": "ephemeral"}}]})");
  const Json known = Json::parse(R"({"role": "assistant", "content": "I look.\n", "tool_calls": [
      {"id": "c1", "type": "function",
       "function": {"name": "Read", "arguments": {"limit": 10.0, "file": "a"}}}]})");
  ASSERT_EQ(first["messages"].size() + 2, second["messages"].size());
  for (size_t i = 0; i < first["messages"].size(); ++i)
    EXPECT_TRUE(same_message(first["messages"][i], second["messages"][i]));
  EXPECT_TRUE(same_message(known, second["messages"][2]));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

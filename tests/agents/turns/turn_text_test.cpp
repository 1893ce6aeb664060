// What sampled turns say: thoughts, content and calls, as a whole and piece by piece.

#include "src/agents/turns/turn_text.h"

#include <gtest/gtest.h>

#include <random>

#include "src/agents/turns/messages.h"

namespace temper {
namespace {

const Json kTools =
    Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}, "list": {"type": "array"},
                   "flag": {"type": "boolean"}, "maybe": {"type": ["string", "null"]},
                   "any": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}}}])");

TurnFormat format(CallSyntax calls, bool thinks = true, bool opens = false) {
  TurnFormat made{.calls = calls};
  if (thinks) made.think_open = "<think>", made.think_close = "</think>", made.prompt_opens = opens;
  return made;
}

std::string shown(const TurnText& turn) {
  std::string text = fmt::format("[{}][{}]", turn.reasoning, turn.content);
  for (const ToolCall& call : turn.calls) {
    text += fmt::format(" {}({})", call.name, call.arguments_text);
    EXPECT_TRUE(same_value(parse_json(call.arguments_text, "arguments"), call.arguments))
        << call.arguments_text;
  }
  return text;
}

/// Fed in pieces that end at these places.
TurnText in_pieces(const std::string& text, const TurnFormat& how, const std::vector<size_t>& ends) {
  TurnStream stream(how, kTools);
  TurnText all;
  const auto add = [&](TurnText delta) {
    all.reasoning += delta.reasoning;
    all.content += delta.content;
    for (ToolCall& call : delta.calls) all.calls.push_back(std::move(call));
  };
  size_t begin = 0;
  for (const size_t end : ends) add(stream.feed(text.substr(begin, end - begin))), begin = end;
  add(stream.feed(text.substr(begin)));
  add(stream.end());
  return all;
}

void expect_turn(const std::string& text, const TurnFormat& how, const std::string& expected) {
  EXPECT_EQ(shown(parse_turn(text, how, kTools)), expected) << text;
  std::vector<size_t> every;
  for (size_t i = 1; i < text.size(); ++i) every.push_back(i);
  EXPECT_EQ(shown(in_pieces(text, how, every)), expected) << text << " byte by byte";
}

TEST(TurnText, Thoughts) {
  const TurnFormat how = format(CallSyntax::none);
  expect_turn("<think>\nwhy\n\nso\n</think>\n\nanswer\n", how, "[why\n\nso][answer\n]");
  expect_turn(" \n<think>why</think>answer", how, "[why][answer]");
  expect_turn("<think>\n\n</think>\n\nanswer", how, "[][answer]");
  expect_turn("<think>\nwhy\n</thin", how, "[why\n</thin][]");
  expect_turn("answer <think>no</think>", how, "[][answer <think>no</think>]");
  expect_turn("\n <thinking", how, "[][\n <thinking]");
  expect_turn("", how, "[][]");
  expect_turn("\n\nwhy\n</think>\n\nanswer", format(CallSyntax::none, true, true), "[why][answer]");
  expect_turn("why", format(CallSyntax::none, true, true), "[why][]");
  expect_turn("<think>a</think>", format(CallSyntax::none, false), "[][<think>a</think>]");
}

TEST(TurnText, CallsInTags) {
  const TurnFormat how = format(CallSyntax::json_tags);
  const std::string call = R"(<tool_call>
{"name": "f", "arguments": {"text": "a </tool_call> b", "count": 1.50}}
</tool_call>)";
  const std::string found = R"( f({"text": "a </tool_call> b", "count": 1.50}))";
  expect_turn(call, how, "[][]" + found);
  expect_turn("<think>\nwhy\n</think>\n\nSo.\n" + call + "\n" + call + "\n", how,
              "[why][So.]" + found + found);
  expect_turn("<think>\nwhy\n</think>\n\n" + call, how, "[why][]" + found);
  expect_turn("So.\n\n" + call + "\n\nDone.", how, "[][So.\nDone.]" + found);
  expect_turn(" \n" + call + "\n\nDone. ", how, "[][Done. ]" + found);
  expect_turn(R"(<tool_call>{"arguments": {"name": "arguments"}, "name": "arguments", "id": 3}</tool_call>)",
              how, R"([][] arguments({"name": "arguments"}))");
  expect_turn(R"(<tool_call>{"name": "f", "argum\u0065nts":{"a" : 1 }}</tool_call>)", how,
              R"([][] f({"a":1}))");
  for (const char* no :
       {"<tool_call>", "<tool_call>\n", "<tool_call>\n{", "<tool_call></tool_call>",
        "<tool_call>[]</tool_call>", R"(<tool_call>{"name": "f", "arguments": {}})",
        R"(<tool_call>{"name": "f", "arguments": {}}</tool_)",
        R"(<tool_call>{"name": "f", "arguments": "{}"}</tool_call>)",
        R"(<tool_call>{"name": "f"}</tool_call>)", R"(<tool_call>{"name": "", "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": 1, "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>)",
        R"(<tool_call>{'name': 'f', 'arguments': {}}</tool_call>)",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}</tool_call>",
        R"(<tool_call>{"name": "f", "arguments": {}} and </tool_call>)", "a <tool_cal"})
    expect_turn(no, how, fmt::format("[][{}]", no));
  expect_turn("<tool_call>{\"name\": \"f <tool_call>" + call.substr(11), how,
              fmt::format("[][<tool_call>{{\"name\": \"f <tool_call>{}]", call.substr(11)));
  expect_turn("<tool_call>{\"name\": " + call, how, "[][<tool_call>{\"name\":]" + found);
  expect_turn("<tool_call>\n" + call, how, "[][<tool_call>]" + found);
  EXPECT_EQ(shown(parse_turn(call, how, nullptr)), fmt::format("[][{}]", call)) << "no tools, no calls";
  EXPECT_EQ(shown(parse_turn(call, how, Json::array())), fmt::format("[][{}]", call));
}

TEST(TurnText, CallsInXml) {
  const TurnFormat how = format(CallSyntax::xml_tags);
  expect_turn(
      "So.\n\n<tool_call>\n<function=f>\n<parameter=text>\na\n\nb </b>\n</parameter>\n<parameter=count>\n7\n"
      "</parameter>\n</function>\n</tool_call>\n",
      how, R"([][So.] f({"text":"a\n\nb </b>","count":7}))");
  expect_turn("<tool_call><function=f></function></tool_call>", how, "[][] f({})");
  const auto argument = [&](const std::string& name, const std::string& said, const std::string& value) {
    expect_turn(
        fmt::format("<tool_call>\n<function=f>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>",
                    name, said),
        how, fmt::format("[][] f({{\"{}\":{}}})", name, value));
  };
  argument("text", "5", R"("5")"), argument("text", "null", R"("null")"), argument("count", "x", R"("x")");
  argument("list", "[1, {\"a\": 2}]", R"([1,{"a":2}])"), argument("flag", "True", "true"),
      argument("flag", "false", "false");
  argument("maybe", "null", "null"), argument("maybe", "None", "null"), argument("maybe", "3", R"("3")");
  argument("any", "2.5", "2.5"), argument("any", "None", "null"), argument("unknown", "5", R"("5")");
  argument("count", "2.5", R"("2.5")"), argument("text", "<parameter=x>", R"("<parameter=x>")");
  for (const char* no :
       {"<tool_call>\n<function=>\n</function></tool_call>", "<tool_call><function=f</function></tool_call>",
        "<tool_call><function=f><parameter=a>1</function></tool_call>",
        R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)",
        "<tool_call><function=f><parameter=a>1</parameter><parameter=a>1</parameter></function></tool_call>",
        "<tool_call><function=f><parameter=a>\xff</parameter></function></tool_call>",
        "<tool_call><function=f></function>"})
    expect_turn(no, how, fmt::format("[][{}]", no));
}

TEST(TurnText, CallsAsJson) {
  const TurnFormat how = format(CallSyntax::json, false);
  const std::string call = R"({"name": "f", "parameters": {"text": "}"}})", found = R"( f({"text": "}"}))";
  expect_turn(call, how, "[][]" + found);
  expect_turn("\n<|python_tag|>" + call + "; " + call + "\n", how, "[][]" + found + found);
  expect_turn(call + "\nDone.", how, "[][Done.]" + found);
  expect_turn("I say " + call, how, "[][I say " + call + "]");
  for (const char* no : {R"({"name": "f"})", "{", R"({"answer": 4} is it)", "<|python_tag|>print(1)",
                         "<|python", " \n ", ";{}", "<|python_tag|><|python_tag|>{}"})
    expect_turn(no, how, fmt::format("[][{}]", no));
  expect_turn("<think>\nwhy\n</think>\n\n" + call, format(CallSyntax::json), "[why][]" + found);
}

TEST(TurnText, PiecesSayWhatTheWholeSays) {
  const std::vector<std::string> parts{"<think>",
                                       "</think>",
                                       "\n",
                                       " ",
                                       "<tool_call>",
                                       "</tool_call>",
                                       R"({"name": "f", "arguments": {"a": [1]}})",
                                       "<function=f>",
                                       "</function>",
                                       "<parameter=text>",
                                       "</parameter>",
                                       "5",
                                       "\"",
                                       "{",
                                       "}",
                                       "\\",
                                       "<|python_tag|>",
                                       ";",
                                       "\xC3\xA9",
                                       "\xff",
                                       "word",
                                       "<",
                                       "</",
                                       "\t",
                                       std::string(1, '\0')};
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (size_t n = below(16); n > 0; --n) {
      std::string part = parts[below(parts.size())];
      text += below(8) == 0 ? part.substr(0, below(part.size() + 1)) : part;
    }
    const auto how = format(static_cast<CallSyntax>(below(4)), below(4) > 0, below(2) == 0);
    std::vector<size_t> ends;
    for (size_t i = 1; i < text.size(); ++i)
      if (below(3) == 0) ends.push_back(i);
    ASSERT_EQ(shown(in_pieces(text, how, ends)), shown(parse_turn(text, how, kTools)))
        << Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
  }
}

/// Nothing that was said is lost but tags and white space.
TEST(TurnText, WhatIsNoCallStays) {
  const TurnFormat how = format(CallSyntax::json_tags, false);
  std::string text;
  for (int i = 0; i < 50; ++i) text += "<tool_call>{\"a\": \"<tool_call>{";
  EXPECT_EQ(parse_turn(text, how, kTools).content, text);
}

TEST(TurnText, CostsWhatItsLengthDoes) {
  const auto repeated = [](const std::string& part, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  for (const CallSyntax calls : {CallSyntax::json_tags, CallSyntax::xml_tags, CallSyntax::json})
    for (const char* part : {"<tool_call>{\"", "<tool_call>", "<tool_call>{\"a\":",
                             "<tool_call><function=f><parameter=a>", "<", "\n", "{\"", "{", "[",
                             "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n", "</think", ";"})
      for (const bool opens : {false, true}) {
        const std::string text = repeated(part, 100'000);
        const TurnFormat how = format(calls, true, opens);
        TurnStream stream(how, kTools);
        size_t bytes = 0;
        const auto add = [&](const TurnText& delta) {
          bytes += delta.content.size() + delta.reasoning.size();
        };
        for (size_t i = 0; i < text.size(); i += 2) add(stream.feed(std::string_view(text).substr(i, 2)));
        add(stream.end());
        EXPECT_LE(bytes, text.size());
      }
}

TEST(TurnText, DeepCallsStayText) {
  const TurnFormat how = format(CallSyntax::json_tags);
  const auto call = [](size_t levels) {
    return "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + std::string(levels, '[') +
           std::string(levels, ']') + "}}</tool_call>";
  };
  EXPECT_EQ(parse_turn(call(31), how, kTools).calls.size(), 1U);
  EXPECT_EQ(parse_turn(call(32), how, kTools).content, call(32));
  EXPECT_EQ(parse_turn(call(200'000), how, kTools).content, call(200'000));
}

TEST(TurnText, AsAMessage) {
  const TurnText turn = parse_turn(
      "<think>\nwhy\n</think>\n\nSo.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>",
      format(CallSyntax::json_tags), kTools);
  const Json expected =
      Json::parse(R"([{"role": "assistant", "content": "So.", "reasoning_content": "why", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}])");
  EXPECT_EQ(turn_message(turn, {"c1"}).dump(), expected[0].dump());
  EXPECT_EQ(normal_messages(expected).dump(), expected.dump()) << "it is in the normal form";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// Messages of requests in the one form that templates and comparisons use.

#include "src/agents/turns/messages.h"

#include <gtest/gtest.h>

#include "src/agents/turns/request_error.h"

namespace temper {
namespace {

Json normal(const std::string& text) { return normal_messages(parse_json(text, "request")); }

void expect_normal(const std::string& given, const std::string& expected) {
  EXPECT_EQ(normal(given).dump(), parse_json(expected, "expected").dump()) << given;
}

/// The request is refused, and the error names the field.
void expect_refused(const std::string& given, const std::string& param, const std::string& words) {
  try {
    ADD_FAILURE() << given << " gave " << normal(given).dump();
  } catch (const RequestError& e) {
    EXPECT_EQ(e.param(), param) << given;
    EXPECT_NE(e.message().find(words), std::string::npos) << e.message();
    EXPECT_EQ(e.code(), Exit::data);
  }
}

TEST(NormalMessages, RolesAndContent) {
  expect_normal(
      R"([{"role": "developer", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "b"},
                    {"type": "text", "text": "c"}]}, {"role": "user", "content": "d", "name": "me"},
                    {"role": "system", "content": "e"}, {"role": "assistant", "content": null, "refusal": null}])",
      R"([{"role": "system", "content": "a\n\nb\nc"}, {"role": "user", "content": "d"},
                    {"role": "system", "content": "e"}, {"role": "assistant", "content": ""}])");
  expect_normal(R"([{"role": "user", "content": []}])", R"([{"role": "user", "content": ""}])");
  expect_normal(R"([{"role": "user"}])", R"([{"role": "user", "content": ""}])");
  expect_normal(
      R"([{"role": "user", "content": ["a", {"type": "text", "text": "b", "cache_control": {"type": "x"}}]}])",
      R"([{"role": "user", "content": "a\nb"}])");
}

TEST(NormalMessages, Calls) {
  expect_normal(R"([{"role": "assistant", "content": "", "tool_calls": [
                    {"id": "c1", "type": "function", "index": 0,
                     "function": {"name": "f", "arguments": "{\"b\": [1, 2.5], \"a\": null}"}},
                    {"id": "c2", "function": {"name": "g", "arguments": {"x": "y"}}},
                    {"function": {"name": "h", "arguments": "not JSON {"}},
                    {"function": {"name": "i", "arguments": ""}}, {"function": {"name": "j"}}]},
                    {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "3"}])",
                R"([{"role": "assistant", "content": "", "tool_calls": [
                    {"id": "c1", "type": "function",
                     "function": {"name": "f", "arguments": {"b": [1, 2.5], "a": null}}},
                    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {"x": "y"}}},
                    {"type": "function", "function": {"name": "h", "arguments": "not JSON {"}},
                    {"type": "function", "function": {"name": "i", "arguments": {}}},
                    {"type": "function", "function": {"name": "j", "arguments": {}}}]},
                    {"role": "tool", "content": "3", "tool_call_id": "c1", "name": "f"}])");
  for (const char* none : {"null", "[]"})
    expect_normal(
        fmt::format(R"([{{"role": "assistant", "content": "a", "tool_calls": {}, "function_call": null}}])",
                    none),
        R"([{"role": "assistant", "content": "a"}])");
}

TEST(NormalMessages, Reasoning) {
  for (const char* name : {"reasoning_content", "reasoning", "thinking"})
    expect_normal(fmt::format(R"([{{"role": "assistant", "{}": "why", "content": "a"}}])", name),
                  R"([{"role": "assistant", "content": "a", "reasoning_content": "why"}])");
  expect_normal(R"([{"role": "assistant", "reasoning_content": null, "reasoning": "why", "content": "a"}])",
                R"([{"role": "assistant", "content": "a", "reasoning_content": "why"}])");
  expect_normal(R"([{"role": "user", "reasoning_content": "why", "content": "a"}])",
                R"([{"role": "user", "content": "a"}])");
}

TEST(NormalMessages, RefusesWithTheField) {
  expect_refused(R"({"role": "user"})", "messages", "an object");
  expect_refused("[]", "messages", "empty");
  expect_refused(R"([{"role": "user"}, 3])", "messages[1]", "a number");
  expect_refused(R"([{"content": "a"}])", "messages[0].role", "missing");
  expect_refused(R"([{"role": "critic"}])", "messages[0].role", "\"critic\"");
  expect_refused(R"([{"role": 1}])", "messages[0].role", "a number");
  expect_refused(R"([{"role": "user", "content": 1}])", "messages[0].content", "a number");
  expect_refused(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}])",
      "messages[0].content[1].type", "\"image_url\"");
  expect_refused(R"([{"role": "user", "content": [{"type": "input_audio"}]}])", "messages[0].content[0].type",
                 "texts");
  expect_refused(R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
                 "messages[0].content[0].text", "a number");
  expect_refused(R"([{"role": "user", "content": [[]]}])", "messages[0].content[0]", "an array");
  expect_refused(R"([{"role": "assistant", "reasoning": {}}])", "messages[0].reasoning", "an object");
  expect_refused(R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls", "an object");
  expect_refused(R"([{"role": "assistant", "tool_calls": [1]}])", "messages[0].tool_calls[0]", "a number");
  expect_refused(R"([{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0].function",
                 "null");
  expect_refused(R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])",
                 "messages[0].tool_calls[0].function.name", "null");
  expect_refused(R"([{"role": "tool", "tool_call_id": 1}])", "messages[0].tool_call_id", "a number");
}

TEST(NormalMessages, DepthOfArguments) {
  const auto nested = [](int levels) {
    const auto n = static_cast<size_t>(levels);
    return std::string(n, '[') + std::string(n, ']');
  };
  const auto request = [](const std::string& arguments) {
    return R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )" + arguments +
           "}}]}]";
  };
  EXPECT_TRUE(normal(request(nested(32)))[0]["tool_calls"][0]["function"]["arguments"].is_array());
  expect_refused(request(nested(33)), "messages[0].tool_calls[0].function.arguments", "32 levels");
  // A text that is not taken for JSON is a text, however deep.
  EXPECT_TRUE(
      normal(request(Json(nested(32)).dump()))[0]["tool_calls"][0]["function"]["arguments"].is_array());
  EXPECT_TRUE(
      normal(request(Json(nested(100'000)).dump()))[0]["tool_calls"][0]["function"]["arguments"].is_string());
}

TEST(SameMessage, ComparesWhatCounts) {
  const auto same = [](const std::string& known, const std::string& asked) {
    return same_message(normal("[" + known + "]")[0], normal("[" + asked + "]")[0]);
  };
  EXPECT_TRUE(same(R"({"role": "user", "content": "a"})",
                   R"({"role": "user", "content": [{"type": "text", "text": "a"}]})"));
  EXPECT_FALSE(same(R"({"role": "user", "content": "a"})", R"({"role": "user", "content": "a "})"));
  EXPECT_TRUE(same(R"({"role": "assistant", "content": " a\n"})",
                   R"({"role": "assistant", "content": "a", "audio": null})"));
  EXPECT_FALSE(same(R"({"role": "assistant", "content": "a"})", R"({"role": "user", "content": "a"})"));
  EXPECT_TRUE(same(R"({"role": "assistant", "content": "a", "reasoning": "r"})",
                   R"({"role": "assistant", "content": "a"})"));
  EXPECT_TRUE(same(R"({"role": "assistant", "content": "a", "reasoning": "r\n"})",
                   R"({"role": "assistant", "content": "a", "thinking": "r"})"));
  EXPECT_FALSE(same(R"({"role": "assistant", "content": "a", "reasoning": "r"})",
                    R"({"role": "assistant", "content": "a", "reasoning": "s"})"));
  EXPECT_FALSE(same(R"({"role": "assistant", "content": "a"})",
                    R"({"role": "assistant", "content": "a", "reasoning": "s"})"));
  EXPECT_TRUE(same(R"({"role": "tool", "content": "a", "tool_call_id": "1", "name": "f"})",
                   R"({"role": "tool", "content": "a", "tool_call_id": "1"})"));
  EXPECT_FALSE(same(R"({"role": "tool", "content": "a", "tool_call_id": "1"})",
                    R"({"role": "tool", "content": "a", "tool_call_id": "2"})"));
  const auto call = [](const std::string& name, const std::string& arguments) {
    return fmt::format(
        R"({{"role": "assistant", "content": null, "tool_calls": [{{"id": "{}", "function":
             {{"name": "{}", "arguments": {}}}}}]}})",
        arguments.size(), name, arguments);
  };
  EXPECT_TRUE(same(call("f", R"({"a": 1, "b": {"c": 2, "d": [3]}})"),
                   call("f", R"("{\"b\":{\"d\":[3.0],\"c\":2},\"a\":1}")")));
  EXPECT_FALSE(same(call("f", R"({"a": 1})"), call("g", R"({"a": 1})")));
  EXPECT_FALSE(same(call("f", R"({"a": 1})"), call("f", R"({"a": 1, "b": null})")));
  EXPECT_FALSE(same(call("f", R"({"a": [1, 2]})"), call("f", R"({"a": [2, 1]})")));
  EXPECT_FALSE(same(call("f", "{}"), R"({"role": "assistant", "content": ""})"));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

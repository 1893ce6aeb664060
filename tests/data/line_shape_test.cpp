// The shapes of data lines: what is prompt and what response in each, and what is said of lines that have
// neither.

#include "src/data/line_shape.h"

#include <gtest/gtest.h>

#include "src/data/prompt_builder.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

LineParts parts_of(const char* line, bool wanted = true, const PromptOptions& options = {}) {
  return line_parts(Json::parse(line), options, "x:1", wanted);
}

/// "role: content" of each message of the prompt, or its text; then what follows " -> ".
std::string shown(const LineParts& parts) {
  const auto of = [](const Json& message) {
    return message.at("role").get<std::string>() + ": " + message.at("content").get<std::string>();
  };
  std::string text = parts.prompt;
  if (!parts.messages.is_null()) text = "";
  for (const Json& message : parts.messages) text += (text.empty() ? "" : " | ") + of(message);
  if (parts.response.is_null()) return text;
  return text + " -> " +
         (parts.response.is_string() ? parts.response.get<std::string>() : of(parts.response));
}

struct Shape {
  const char *line, *with_response, *prompt;
};
const Shape kShapes[] = {
    {R"({"prompt":"2+2?","response":"4","answer":"four"})", "2+2? -> 4", "2+2?"},
    {R"({"prompt":"2+2?","completion":" 4"})", "2+2? ->  4", "2+2?"},
    {R"({"prompt":"2+2?","completion":[{"role":"assistant","content":"4"}]})", "2+2? -> assistant: 4",
     "2+2?"},
    {R"({"prompt":[{"role":"system","content":"S"},{"role":"user","content":"2+2?"}],
         "completion":[{"role":"assistant","content":"4"}]})",
     "system: S | user: 2+2? -> assistant: 4", "system: S | user: 2+2?"},
    {R"({"prompt":[{"role":"user","content":"2+2?"}],"completion":"4"})", "user: 2+2? -> 4", "user: 2+2?"},
    {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
     "user: a -> assistant: b", "user: a"},
    {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
                     {"role":"user","content":"c"},{"role":"assistant","content":"d"}]})",
     "user: a | assistant: b | user: c -> assistant: d", "user: a | assistant: b | user: c"},
    {R"({"messages":[{"role":"user","content":"a"}],"response":"b"})", "user: a -> b", "user: a"},
    // A prompt beside the conversation that it begins.
    {R"({"prompt":"a","prompt_id":"7","messages":[{"role":"user","content":"a"},
                                                  {"role":"assistant","content":"b"}]})",
     "user: a -> assistant: b", "a"},
    {R"({"instruction":"Add.","input":"2, 2","output":"4"})", "Add.\n\n2, 2 -> 4", "Add.\n\n2, 2"},
    {R"({"instruction":"Say hi.","input":"","output":"hi"})", "Say hi. -> hi", "Say hi."},
    {R"({"instruction":"Say hi.","input":null,"output":"hi","text":"all of it"})", "Say hi. -> hi",
     "Say hi."},
    {R"({"instruction":"d","output":"e","system":"S","history":[["a","b"]]})",
     "system: S | user: a | assistant: b | user: d -> e", "system: S | user: a | assistant: b | user: d"},
    {R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})",
     "user: a -> assistant: b", "user: a"},
    {R"({"id":"x","system":"S","conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},
         {"from":"observation","value":"t"},{"from":"gpt","value":"c"}]})",
     "system: S | user: a | assistant: b | tool: t -> assistant: c",
     "system: S | user: a | assistant: b | tool: t"},
    {R"({"conversations":[{"from":"system","value":"S"},{"from":"user","value":"a"},
                          {"from":"assistant","value":"b"}],"system":"other"})",
     "system: S | user: a -> assistant: b", "system: S | user: a"},
    {R"({"conversations":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
     "user: a -> assistant: b", "user: a"},
};

TEST(LineShape, EachIsRecognised) {
  for (const Shape& shape : kShapes) {
    EXPECT_EQ(shown(parts_of(shape.line)), shape.with_response) << shape.line;
    EXPECT_EQ(shown(parts_of(shape.line, false)), shape.prompt) << shape.line;
  }
}

TEST(LineShape, WithoutChatTextsAreEnough) {
  PromptOptions plain;
  plain.chat = false;
  EXPECT_EQ(shown(parts_of(R"({"prompt":"a","completion":"b"})", true, plain)), "a -> b");
  EXPECT_EQ(shown(parts_of(R"({"instruction":"a","input":"x","output":"b"})", true, plain)), "a\n\nx -> b");
  for (const char* line :
       {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
        R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})",
        R"({"prompt":"a","completion":[{"role":"assistant","content":"b"}]})",
        R"({"instruction":"a","output":"b","system":"S"})"})
    expect_error(Exit::data, {"x:1", "needs a template", "keys of the line", "set data.chat = true"}, line,
                 [&] { parts_of(line, true, plain); });
}

/// Keys of the config come first, and a key that was changed is not guessed at.
TEST(LineShape, KeysOfTheConfigComeFirst) {
  PromptOptions renamed;
  renamed.prompt_key = "q";
  renamed.response_key = "r";
  EXPECT_EQ(shown(parts_of(R"({"q":"a","r":"b","prompt":"x","completion":"y"})", true, renamed)), "a -> b");
  expect_error(Exit::data,
               {"no text \"q\"", "keys of the line: \"instruction\", \"output\"",
                "set data.prompt_key = \"instruction\""},
               "prompt", [&] { parts_of(R"({"instruction":"a","output":"b"})", true, renamed); });
  expect_error(Exit::data, {"no text \"r\"", "set data.response_key = \"completion\""}, "response",
               [&] { parts_of(R"({"q":"a","completion":"b"})", true, renamed); });
  PromptOptions verl;
  verl.messages_key = "prompt";
  EXPECT_EQ(shown(parts_of(R"({"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
                           false, verl)),
            "user: a | assistant: b")
      << "all of them are the prompt";
}

TEST(LineShape, ErrorsNameTheKeyToSetAndWhatWasSeen) {
  struct {
    const char* line;
    std::vector<std::string> words;
  } const wrong[] = {
      {R"({"question":"a","answer":"b"})",
       {"no text \"prompt\"", "keys of the line: \"question\", \"answer\"",
        "data.prompt_key = \"question\""}},
      {R"({"prompt":"a","answer":"b"})",
       {"no text \"response\"", "keys of the line: \"prompt\", \"answer\"",
        "data.response_key = \"answer\""}},
      {R"({"turns":[{"role":"user","content":"a"}]})",
       {"no text \"prompt\"", "data.messages_key = \"turns\""}},
      {R"({"a":1,"b":2})",
       {"no text \"prompt\"", "keys of the line: \"a\", \"b\"", "set data.prompt_key to"}},
      {R"({"prompt":"a"})", {"no text \"response\"", "set data.response_key to the key of its response"}},
      {R"({"prompt":"a","completion":7})", {"no text \"completion\"", "it is a number"}},
      {R"({"instruction":["a"],"output":"b"})", {"no text \"instruction\"", "it is an array"}},
      {R"({"instruction":"a","input":1,"output":"b"})", {"no text \"input\"", "it is a number"}},
      {R"({"instruction":"a"})", {"no text \"response\"", "\"instruction\""}},
      {R"({"instruction":"a","output":"b","history":[["x"]]})", {"\"history\"", "what was asked"}},
      {R"({"instruction":"a","output":"b","history":"x"})", {"\"history\"", "it is a string"}},
      {R"({"messages":[{"role":"user","content":"a"}]})", {"no text \"response\""}},
      {R"({"messages":[{"role":"user","content":"a"},{"role":7}]})", {"a message has no role"}},
      {R"({"messages":[{"role":"assistant","content":"a"}]})", {"\"messages\" has no prompt"}},
      {R"({"conversations":[]})", {"\"conversations\" is not a list of messages", "the list is empty"}},
      {R"({"conversations":"a"})", {"\"conversations\" holds something", "it is a string"}},
      {R"({"conversations":[{"from":"human"}]})", {"\"conversations\" holds something", "\"from\""}},
      {R"({"conversations":[{"from":"narrator","value":"a"}]})", {"somebody unknown", "\"narrator\""}},
      {R"({"conversations":[{"from":7,"value":"a"}]})", {"somebody unknown", "is 7"}},
      {R"({"prompt":"a","completion":[{"role":"user","content":"b"}]})",
       {"not one message of the assistant"}},
      {R"({"prompt":"a","completion":[{"role":"assistant","content":"b"},{"role":"assistant","content":"c"}]})",
       {"not one message of the assistant", "a list of 2"}},
  };
  for (const auto& [line, words] : wrong)
    expect_error(Exit::data, words, line, [&, text = line] { parts_of(text); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

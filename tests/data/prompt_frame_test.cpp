// What a chat template puts around a question, found by asking the template.

#include "src/data/prompt_frame.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

constexpr const char* kChat =
    "{%- if messages[0].role == 'system' %}<s>{{ messages[0].content }}</s>\n{%- else %}<s>Be kind.</s>\n"
    "{%- endif %}{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

std::string rendered(const Json& messages) {
  return ChatTemplate(kChat, "test").render({{"messages", messages}, {"add_generation_prompt", true}});
}

Json turn(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

PromptFrame frame() { return prompt_frame(ChatTemplate(kChat, "test"), {{"add_generation_prompt", true}}); }

TEST(PromptFrame, LeavesTheLastQuestion) {
  const PromptFrame found = frame();
  for (const Json& before : {Json::array(), Json::array({turn("system", "Answer in French.")}),
                             Json::array({turn("user", "Hello"), turn("assistant", "Good day")})}) {
    Json messages = before;
    messages.push_back(turn("user", "What is 2 < 3?\n\nSay why."));
    EXPECT_EQ(found.question(rendered(messages)), "What is 2 < 3?\n\nSay why.") << messages.dump();
  }
}

TEST(PromptFrame, WhatIsNotFramedStaysWhole) {
  for (const char* plain : {"38+47=", "", "<assistant>", "x</>\n<assistant>"})
    EXPECT_EQ(frame().question(plain), plain);
  EXPECT_EQ(PromptFrame().question("38+47="), "38+47=");
}

TEST(PromptFrame, OfATemplateThatRefusesTurnsIsThatOfOneQuestion) {
  const ChatTemplate one(
      "{% if messages|length > 1 %}{{ raise_exception('one') }}{% endif %}Q: {{ messages[0].content }} A:",
      "t");
  EXPECT_EQ(prompt_frame(one, Json::object()).question("Q: why? A:"), "why?");
  const ChatTemplate never("{{ raise_exception('no') }}", "t");
  EXPECT_EQ(prompt_frame(never, Json::object()).question("Q: why? A:"), "Q: why? A:");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// Ids behind sampled turns, on real templates and on such that set traps. Parts are compared with the whole.

#include "src/agents/turns/turn_cut.h"

#include <gtest/gtest.h>

#include <random>

#include "src/agents/turns/request_error.h"
#include "src/agents/turns/turn_text.h"
#include "src/core/file.h"
#include "tests/support/real_data.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

using Ids = std::vector<int32_t>;
using Names = std::vector<std::string>;

const std::string kTemplates = "tests/golden/chat/templates/";
const Tokenizer& minimind() {
  static const Tokenizer loaded = Tokenizer::load("tests/golden/tokenizer/minimind");
  return loaded;
}

ChatTemplate chat(const std::string& name) {
  const std::string path = kTemplates + name + ".jinja";
  return ChatTemplate(read_file(path, 1 << 20), path);
}

Json message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}
Json result(const std::string& id, const std::string& content) {
  return {{"role", "tool"}, {"content", content}, {"tool_call_id", id}, {"name", "add"}};
}
Json calls(int count) {
  Json answer = message("assistant", "");
  answer["tool_calls"] = Json::array();
  for (int i = 0; i < count; ++i)
    answer["tool_calls"].push_back({{"id", fmt::format("call0000{}", i)},
                                    {"type", "function"},
                                    {"function", {{"name", "add"}, {"arguments", {{"a", i}, {"b", "x"}}}}}});
  return answer;
}
const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "add", "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}])");

std::string text_of(const Tokenizer& tokenizer, const Ids& ids) {
  return tokenizer.decode(ids, /*skip_special=*/false);
}

/// A real template with a tokenizer that has its special tokens.
struct Model {
  std::string name;
  const Tokenizer& tokenizer;
  ChatTemplate chat;
  TurnCut cut{tokenizer, chat, Json::object()};
};

void expect_behind(const Model& m, const Json& answer, const Json& asked, const std::string& expected,
                   TurnEnd end = {}) {
  const auto ids = m.cut.behind(answer, asked, kTools, nullptr, end);
  ASSERT_TRUE(ids) << m.name << " " << asked.dump();
  EXPECT_EQ(text_of(m.tokenizer, *ids), expected) << m.name;
}

TEST(TurnCut, WhatStandsBehindATurn) {
  const Model m{"qwen2.5", minimind(), chat("qwen2.5")};
  const Json user = Json::array({message("user", "More.")});
  const std::string next = "\n<|im_start|>user\nMore.<|im_end|>\n<|im_start|>assistant\n";
  const int32_t end = *m.tokenizer.token_id("<|im_end|>"), other = *m.tokenizer.token_id("<|endoftext|>"),
                call = *m.tokenizer.token_id("</tool_call>");
  expect_behind(m, message("assistant", "So."), user, next, {end, true});
  expect_behind(m, message("assistant", "So."), user, next, {other, true});  // as sampled
  expect_behind(m, message("assistant", "So."), user, "<|im_end|>" + next, {call, true});
  expect_behind(m, message("assistant", "So."), user, "<|im_end|>" + next, {call, false});
  expect_behind(m, message("assistant", "So."), user, "<|im_end|>" + next, {});
  expect_behind(
      m, calls(2), Json::array({result("call00000", "1"), result("call00001", "2")}),
      "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
      "<|im_end|>\n<|im_start|>assistant\n",
      {end, true});
  expect_behind(m, calls(1), Json::array({result("call00000", "1"), message("user", "More.")}),
                "\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>" + next, {end, true});
  const Model thinks{"qwen3", minimind(), chat("qwen3")};
  const auto quick = thinks.cut.behind(message("assistant", "So."), user, nullptr,
                                       {{"enable_thinking", false}}, {end, true});
  EXPECT_EQ(text_of(m.tokenizer, *quick), next + "<think>\n\n</think>\n\n");
}

/// Random dialogues: the ids of prompts, sampled turns and what stands behind them.
void expect_parts(const Model& m, bool tools_too, bool whole_is_parts) {
  std::mt19937 random(11);
  const auto below = [&](size_t n) { return random() % n; };
  const char* const words[] = {"two", " and", "\n",   "  ",   "{\"a\": 1}", "é",
                               "<b>", "7",    "你好", "\n\n", " .",         "</"};
  const auto text = [&] {
    std::string said = "w";
    for (size_t n = below(8); n > 0; --n) said += words[below(std::size(words))];
    return said + ".";
  };
  const Json tools = tools_too ? kTools : Json();
  const Ids end = m.tokenizer.encode(*m.tokenizer.special_token("eos_token"), false);
  for (int round = 0; round < 40; ++round) {
    Json messages = Json::array();
    if (below(2) == 0) messages.push_back(message("system", text()));
    messages.push_back(message("user", text()));
    Ids ids = m.cut.whole(messages, tools, nullptr);
    for (size_t turns = 1 + below(4); turns > 0; --turns) {
      const bool called = tools_too && below(2) == 0;
      const Json answer = called ? calls(static_cast<int>(1 + below(2))) : message("assistant", text());
      std::string said = called ? "" : answer["content"].get<std::string>();
      if (called)
        for (const Json& call : answer["tool_calls"])
          said += fmt::format(
              "{}<tool_call>\n{{\"name\": \"add\", \"arguments\": {{\"a\": {}, \"b\": "
              "\"x\"}}}}\n</tool_call>",
              said.empty() ? "" : "\n", call["function"]["arguments"]["a"].get<int>());
      Json asked = Json::array();
      if (called)
        for (const Json& call : answer["tool_calls"]) asked.push_back(result(call["id"], text()));
      if (!called || below(3) == 0) asked.push_back(message("user", text()));
      Ids sampled = m.tokenizer.encode(said, false);
      const bool stopped = below(3) > 0;
      if (stopped) sampled.push_back(end.front());
      const auto behind = m.cut.behind(answer, asked, tools, nullptr, {sampled.back(), stopped});
      ASSERT_TRUE(behind) << m.name << " " << asked.dump();
      ids.insert(ids.end(), sampled.begin(), sampled.end());
      ids.insert(ids.end(), behind->begin(), behind->end());
      messages.push_back(answer);
      for (const Json& one : asked) messages.push_back(one);
      const Ids whole = m.cut.whole(messages, tools, nullptr);
      ASSERT_GE(whole.size(), behind->size());
      EXPECT_TRUE(std::equal(behind->rbegin(), behind->rend(), whole.rbegin()))
          << m.name << "\n"
          << text_of(m.tokenizer, whole) << "\nends otherwise than\n"
          << text_of(m.tokenizer, *behind);
    }
    if (!whole_is_parts) continue;
    EXPECT_EQ(text_of(m.tokenizer, ids), m.cut.whole_text(messages, tools, nullptr)) << m.name;
  }
}

TEST(TurnCut, PartsOfRandomDialogues) {
  expect_parts({"qwen2.5", minimind(), chat("qwen2.5")}, true, true);
  expect_parts({"qwen3", minimind(), chat("qwen3")}, true, false);
  expect_parts({"minimind", minimind(), chat("minimind")}, true, false);
}

TEST(TurnCut, RealTokenizers) {
  for (const char* name : {"qwen2.5", "qwen3", "deepseek-v3"}) {
    TempDir folder;
    if (!unpack_tokenizer(name, folder.path())) GTEST_SKIP() << how_to_get("tokenizers");
    const Tokenizer tokenizer = Tokenizer::load(folder.path());
    const bool whole = name != std::string("qwen3");
    expect_parts({name, tokenizer, chat(name)}, name != std::string("deepseek-v3"), whole);
  }
}

TEST(TurnCut, KindsOfRealTemplates) {
  const auto kinds = [](const char* name) {
    return Model{name, minimind(), chat(name)}.cut.kinds_without_cut();
  };
  EXPECT_EQ(kinds("qwen2.5"), Names());
  EXPECT_EQ(kinds("qwen3"), Names());
  EXPECT_EQ(kinds("minimind"), Names());
  EXPECT_EQ(kinds("deepseek-v3"), Names{"system, user"});  // system messages stand in front there
}

TEST(TurnCut, FormatsOfRealTemplates) {
  const auto format = [](const char* name, const Json& arguments = nullptr) {
    const TurnFormat f = Model{name, minimind(), chat(name)}.cut.format(arguments);
    return fmt::format("{} {} {} calls {}{}{}", f.think_open, f.think_close, f.prompt_opens ? "open" : "-",
                       static_cast<int>(f.calls), f.takes_tools ? " tools" : "",
                       f.arguments_as_object ? " object" : "");
  };
  EXPECT_EQ(format("qwen2.5"), "  - calls 1 tools object");
  EXPECT_EQ(format("qwen3"), "<think> </think> - calls 1 tools object");
  EXPECT_EQ(format("qwen3", {{"enable_thinking", false}}), "<think> </think> - calls 1 tools object");
  EXPECT_EQ(format("minimind"), "<think> </think> - calls 1 tools object");
  EXPECT_EQ(format("minimind", {{"open_thinking", true}}), "<think> </think> open calls 1 tools object");
  EXPECT_EQ(format("deepseek-v3"), "  - calls 0");
}

/// Templates that are not as others, on the tokens of minimind.
Model trap(const std::string& name, const std::string& text) {
  return {name, minimind(), ChatTemplate(text, name)};
}

constexpr const char* kPrompt = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST(TurnCut, AStopIdThatBeginsTheNextMessageStandsOnce) {
  // <|object_ref_start|> and <|box_start|> stand for GLM's <|user|> and <|observation|>, which end turns,
  // too.
  const Model m =
      trap("glm",
           "{% for m in messages %}{% if m.role == 'user' %}<|object_ref_start|>\n{{ m.content }}"
           "{% elif m.role == 'tool' %}<|box_start|>\n{{ m.content }}{% else %}<|im_start|>\n{{ m.content }}"
           "{% for c in m.tool_calls %}<tool_call>{{ c.function.name }}\n{{ c.function.arguments | tojson "
           "}}</tool_call>"
           "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}");
  const int32_t user = *m.tokenizer.token_id("<|object_ref_start|>"),
                tool = *m.tokenizer.token_id("<|box_start|>");
  const Json more = Json::array({message("user", "More.")}), seven = Json::array({result("call00000", "7")});
  expect_behind(m, message("assistant", "So."), more, "\nMore.<|im_start|>", {user, true});
  expect_behind(m, message("assistant", "So."), more, "<|object_ref_start|>\nMore.<|im_start|>",
                {tool, true});
  expect_behind(m, message("assistant", "So."), more, "<|object_ref_start|>\nMore.<|im_start|>", {});
  expect_behind(m, calls(1), seven, "\n7<|im_start|>", {tool, true});
  expect_behind(m, calls(1), seven, "<|box_start|>\n7<|im_start|>", {});
}

TEST(TurnCut, WhiteSpaceBeforeTheEndTokenIsNotOfTheTurn) {
  const Model m = trap("llama2",
                       "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
                       "{% else %} {{ m.content }} <|im_end|><|im_start|>{% endif %}{% endfor %}");
  const Json more = Json::array({message("user", "More.")});
  const int32_t end = *m.tokenizer.token_id("<|im_end|>");
  expect_behind(m, message("assistant", "So."), more, "<|im_start|>[INST] More. [/INST]", {end, true});
  expect_behind(m, message("assistant", "So."), more, "<|im_end|><|im_start|>[INST] More. [/INST]", {});
}

TEST(TurnCut, AnotherEndTokenBehindTheLastTurn) {
  const Model m =
      trap("phi3",
           std::string(
               "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}") +
               kPrompt + "{% if not add_generation_prompt %}<|endoftext|>{% endif %}");
  const Json more = Json::array({message("user", "More.")});
  expect_behind(m, message("assistant", "So."), more,
                "\n<|im_start|>user\nMore.<|im_end|>\n<|im_start|>assistant\n",
                {*m.tokenizer.token_id("<|endoftext|>"), true});
  EXPECT_EQ(m.cut.kinds_without_cut(), Names());
}

TEST(TurnCut, NoCutWhereTheTemplateHasNone) {
  const std::string turn = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n";
  const Model counts =
      trap("counts", "{% for m in messages %}{{ loop.index }}" + turn + "{% endfor %}" + kPrompt);
  EXPECT_EQ(counts.cut.kinds_without_cut().size(), 6U);
  EXPECT_FALSE(counts.cut.behind(message("assistant", "So."), Json::array({message("user", "More.")}),
                                 nullptr, nullptr, {}));
  const Model strict = trap("strict",
                            "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                            "{{ raise_exception('roles must alternate') }}{% endif %}" +
                                turn + "{% endfor %}" + kPrompt);
  EXPECT_EQ(strict.cut.kinds_without_cut(),
            (Names{"tool", "two tools", "tool, user", "system, user", "user, user"}));
  const Model drops = trap("drops", "{% for m in messages if m.role in ['user', 'assistant'] %}" + turn +
                                        "{% endfor %}" + kPrompt);
  EXPECT_EQ(drops.cut.kinds_without_cut(), (Names{"tool", "two tools", "tool, user", "system, user"}));
  try {
    strict.cut.whole(Json::array({message("user", "a"), message("user", "b")}), nullptr, nullptr);
    ADD_FAILURE() << "accepted";
  } catch (const RequestError& e) {
    EXPECT_EQ(e.param(), "messages");
    EXPECT_NE(e.message().find("roles must alternate"), std::string::npos) << e.message();
  }
}

TEST(TurnCut, ArgumentsInTheFormThatTheTemplateTakes) {
  const std::string begin =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}"
      "<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": ";
  const std::string end = "}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}" + std::string(kPrompt);
  const Json asked = Json::array({message("user", "2?"), calls(1)});
  const Model text = trap("text", begin + "{{ c.function.arguments }}" + end);
  EXPECT_FALSE(text.cut.format(nullptr).arguments_as_object) << "an object is shown as Python writes it";
  EXPECT_NE(text.cut.whole_text(asked, nullptr, nullptr).find(R"("arguments": {"a":0,"b":"x"}})"),
            std::string::npos);
  const Model joined = trap("joined", begin + "{{ '' + c.function.arguments }}" + end);
  EXPECT_FALSE(joined.cut.format(nullptr).arguments_as_object);
  const Model object = trap("object", begin + "{{ c.function.arguments | tojson }}" + end);
  EXPECT_TRUE(object.cut.format(nullptr).arguments_as_object);
  EXPECT_EQ(object.cut.format(nullptr).calls, CallSyntax::json_tags);
}

TEST(TurnCut, FormatsOfOtherTemplates) {
  const std::string begin =
      "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role "
      "}}\n";
  const std::string end = "<|im_end|>\n{% endfor %}" + std::string(kPrompt);
  const auto format = [&](const std::string& body) {
    return trap("format", begin + body + end).cut.format(nullptr);
  };
  const TurnFormat xml = format(
      "{{ m.content }}{% for c in m.tool_calls %}<tool_call>\n<function={{ c.function.name }}>\n"
      "{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}"
      "</function>\n</tool_call>{% endfor %}");
  EXPECT_EQ(xml.calls, CallSyntax::xml_tags);
  const std::string json =
      "{% if m.tool_calls %}{{ '{\"name\": \"' + m.tool_calls[0].function.name + '\", \"parameters\": ' }}"
      "{{ m.tool_calls[0].function.arguments | tojson }}{{ '}' }}{% else %}{{ m.content }}{% endif %}";
  EXPECT_EQ(format(json).calls, CallSyntax::json);
  EXPECT_EQ(format("{% if m.tool_calls %}<|python_tag|>{% endif %}" + json).calls, CallSyntax::json);
  EXPECT_EQ(format("{% if m.tool_calls %}[TOOL_CALLS] {% endif %}" + json).calls, CallSyntax::none);
  const TurnFormat r1 =
      trap(
          "r1",
          "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")
          .cut.format(nullptr);
  EXPECT_EQ(r1.think_open, "<think>");
  EXPECT_TRUE(r1.prompt_opens);
  const TurnFormat other =
      format("{% if m.thinking %}[THINK]{{ m.thinking }}[/THINK]{% endif %}{{ m.content }}");
  EXPECT_EQ(other.think_open + other.think_close, "[THINK][/THINK]");
  EXPECT_FALSE(other.prompt_opens);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

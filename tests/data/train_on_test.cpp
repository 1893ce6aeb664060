// Which tokens of a conversation are trained: the masks of transformers, and spans that are found in the ids
// by the special tokens around turns.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/core/file.h"
#include "src/data/dataset.h"
#include "src/data/prompt_builder.h"
#include "tests/support/expect_error.h"
#include "tests/support/real_data.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

using Ids = std::vector<int32_t>;
using Mask = std::vector<uint8_t>;

ChatTemplate chat(const std::string& name) {
  const std::string path = "tests/golden/chat/templates/" + name + ".jinja";
  return ChatTemplate(read_file(path, 1 << 20), path);
}

struct Sample {
  Ids ids;
  Mask mask;  // of all ids
};

Sample sample_of(const Prompt& prompt) {
  Sample s{prompt.tokens, Mask(prompt.tokens.size(), 0)};
  s.ids.insert(s.ids.end(), prompt.response_tokens.begin(), prompt.response_tokens.end());
  Mask mask = prompt.response_mask;
  mask.resize(prompt.response_tokens.size(), 1);
  s.mask.insert(s.mask.end(), mask.begin(), mask.end());
  return s;
}

/// The bytes and the special tokens of all templates, of which a template names some.
Tokenizer bytes_tokenizer(const Json& special) {
  const TempDir folder;
  write_file_atomic(folder / "tokenizer.json", read_file("tests/golden/turns/tokenizer.json", 1 << 20));
  write_file_atomic(folder / "tokenizer_config.json", special.dump());
  return Tokenizer::load(folder.path());
}

Json line_of(const Json& messages, const Json& tools = nullptr) {
  Json line{{"messages", messages}};
  if (!tools.is_null()) line["tools"] = tools;
  return line;
}

PromptOptions options_of(TrainOn turns, Json arguments = Json::object()) {
  PromptOptions options;
  options.chat_arguments = std::move(arguments);
  options.train_on = turns;
  return options;
}

/// What the template of Qwen3 renders otherwise in the history than at the end.
bool rewrites(const Json& golden) {
  return golden["template"] == "qwen3" &&
         golden["name"].get<std::string>().find("thoughts") == std::string::npos && golden["name"] != "one";
}

/// Variables of the template. Tools that it does not show are refused, and change nothing of the text.
Json variables_of(const Json& golden, const Tokenizer& tokenizer, const ChatTemplate& rendered) {
  Json variables = golden["variables"];
  if (!variables.contains("tools") ||
      golden["text"].get<std::string>().find("\"parameters\"") != std::string::npos)
    return variables;
  const PromptBuilder builder(tokenizer, &rendered, options_of(TrainOn::last, variables));
  expect_error(Exit::data, {"no place for the tools of data.chat_arguments", "which has 1 tool"}, "tools",
               [&] { builder.build(line_of(golden["messages"]), "x:1", true); });
  variables.erase("tools");
  return variables;
}

TEST(TrainOn, AllHasTheMasksOfTransformers) {
  int64_t equal = 0, refused = 0;
  for (const Json& golden : read_json_file("tests/golden/turns/masks.json")) {
    const std::string name =
        fmt::format("{}: {}", golden["template"].get<std::string>(), golden["name"].get<std::string>());
    const Tokenizer tokenizer = bytes_tokenizer(golden["special"]);
    const ChatTemplate rendered = chat(golden["template"]);
    const PromptBuilder builder(tokenizer, &rendered,
                                options_of(TrainOn::all, variables_of(golden, tokenizer, rendered)));
    const Json line = line_of(golden["messages"]);
    if (rewrites(golden)) {
      ++refused;
      expect_error(Exit::data, {"earlier turn", "turn 1 of the assistant", "data.train_on = \"each\""}, name,
                   [&] { builder.build(line, "x:1", true); });
      continue;
    }
    const Sample ours = sample_of(builder.build(line, "x:1", true));
    const Ids whole = tokenizer.encode(golden["text"].get<std::string>(), false);
    ASSERT_EQ(std::ssize(whole), golden["ids"].get<int64_t>()) << name;
    Mask mask(whole.size(), 0);
    for (const Json& span : golden["spans"])
      std::fill(mask.begin() + span[0].get<int>(), mask.begin() + span[1].get<int>(), 1);
    while (!mask.back()) mask.pop_back();  // what follows the last turn is never sampled
    EXPECT_EQ(ours.mask, mask) << name;
    EXPECT_EQ(ours.ids, Ids(whole.begin(), whole.begin() + std::ssize(mask))) << name;
    ++equal;
  }
  EXPECT_EQ(equal, 22);
  EXPECT_EQ(refused, 5);
}

/// Each turn is what "last" makes of the conversation up to it, whatever the template does to earlier ones.
TEST(TrainOn, EachIsTheLastOfItsBeginning) {
  for (const Json& golden : read_json_file("tests/golden/turns/masks.json")) {
    const Tokenizer tokenizer = bytes_tokenizer(golden["special"]);
    const ChatTemplate rendered = chat(golden["template"]);
    const Json variables = variables_of(golden, tokenizer, rendered);
    const PromptBuilder each(tokenizer, &rendered, options_of(TrainOn::each, variables)),
        last(tokenizer, &rendered, options_of(TrainOn::last, variables));
    Json begin = Json::array();
    int64_t turn = 0;
    for (const Json& message : golden["messages"]) {
      begin.push_back(message);
      if (message["role"] != "assistant") continue;
      const Prompt one = each.build(line_of(golden["messages"]), "x:1", true, turn++),
                   other = last.build(line_of(begin), "x:1", true);
      EXPECT_EQ(one.tokens, other.tokens);
      EXPECT_EQ(one.response_tokens, other.response_tokens);
      EXPECT_TRUE(one.response_mask.empty());
    }
    EXPECT_EQ(count_turns(line_of(golden["messages"]), options_of(TrainOn::each), "x:1"), turn);
  }
}

/// Where turns of the assistant lie, by what begins and ends them.
struct Marks {
  std::vector<Ids> begins;
  int32_t end;
};

Mask spans(const Ids& ids, const Marks& marks) {
  Mask mask(ids.size(), 0);
  bool inside = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    mask[i] = inside;
    if (ids[i] == marks.end) inside = false;
    for (const Ids& begin : marks.begins)
      inside |= i + 1 >= begin.size() &&
                std::equal(begin.rbegin(), begin.rend(),
                           ids.rbegin() + std::ssize(ids) - 1 - static_cast<std::ptrdiff_t>(i));
  }
  return mask;
}

Json random_talk(std::mt19937& random, bool thinks) {
  const auto below = [&](size_t n) { return random() % n; };
  const char* const words[] = {"two", " and", "\n",   "  ",   "{\"a\": 1}", "é",
                               "<b>", "7",    "你好", "\n\n", " .",         "assistant"};
  const auto text = [&] {
    std::string said = "w";
    for (size_t n = below(8); n > 0; --n) said += words[below(std::size(words))];
    return said + ".";
  };
  Json talk = Json::array();
  if (below(2) == 0) talk.push_back({{"role", "system"}, {"content", text()}});
  talk.push_back({{"role", "user"}, {"content", text()}});
  for (size_t turns = 1 + below(4); turns > 0; --turns) {
    Json said{{"role", "assistant"}, {"content", text()}};
    if (thinks) said["reasoning_content"] = text();
    talk.push_back(said);
    if (turns > 1) talk.push_back({{"role", thinks ? "tool" : "user"}, {"content", text()}});
  }
  return talk;
}

void expect_spans(const std::string& name, const Tokenizer& tokenizer, const Marks& marks,
                  bool thinks = false) {
  const ChatTemplate rendered = chat(name);
  const PromptBuilder builder(tokenizer, &rendered, options_of(TrainOn::all));
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Json talk = random_talk(random, thinks);
    const Sample sample = sample_of(builder.build(line_of(talk), "x:1", true));
    ASSERT_EQ(sample.mask, spans(sample.ids, marks)) << name << "\n" << talk.dump();
  }
}

Marks chatml(const Tokenizer& tokenizer, const std::string& more = "") {
  Ids begin = tokenizer.encode("<|im_start|>assistant\n" + more, false);
  return {{std::move(begin)}, *tokenizer.token_id("<|im_end|>")};
}

TEST(TrainOn, AllAreTheSpansOfTheAssistant) {
  const Tokenizer tokenizer = Tokenizer::load("tests/golden/tokenizer/minimind");
  expect_spans("qwen2.5", tokenizer, chatml(tokenizer));
  expect_spans("qwen3", tokenizer, chatml(tokenizer), /*thinks=*/true);
  expect_spans("minimind", tokenizer, chatml(tokenizer, "<think>\n\n</think>\n\n"));
}

TEST(TrainOn, AllAreTheSpansOfTheAssistantWithRealTokenizers) {
  for (const char* name : {"qwen2.5", "qwen3", "deepseek-v3"}) {
    const TempDir folder;
    if (!unpack_tokenizer(name, folder.path())) GTEST_SKIP() << how_to_get("tokenizers");
    const Tokenizer tokenizer = Tokenizer::load(folder.path());
    const bool deepseek = name == std::string("deepseek-v3");
    const Marks marks = deepseek ? Marks{{tokenizer.encode("<｜Assistant｜>", false)},
                                         *tokenizer.token_id("<｜end▁of▁sentence｜>")}
                                 : chatml(tokenizer);
    expect_spans(name, tokenizer, marks, name == std::string("qwen3"));
  }
}

TEST(TrainOn, LinesOfOneTurnAreTheSame) {
  const Tokenizer tokenizer = Tokenizer::load("tests/golden/tokenizer/minimind");
  const ChatTemplate rendered = chat("qwen2.5");
  for (
      const char* line :
      {R"({"prompt": "a", "response": "b"})", R"({"instruction": "a", "output": "b"})",
       R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})",
       R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       R"({"tokens": [5, 6], "response": "b"})"}) {
    const Json record = Json::parse(line);
    const auto build = [&](TrainOn turns) {
      return PromptBuilder(tokenizer, &rendered, options_of(turns)).build(record, "x:1", true);
    };
    const Prompt last = build(TrainOn::last);
    for (const TrainOn turns : {TrainOn::all, TrainOn::each}) {
      const Prompt other = build(turns);
      EXPECT_EQ(other.text, last.text) << line;
      EXPECT_EQ(other.tokens, last.tokens) << line;
      EXPECT_EQ(other.response, last.response) << line;
      EXPECT_EQ(other.response_tokens, last.response_tokens) << line;
      EXPECT_EQ(count_turns(record, options_of(turns), "x:1"), 1) << line;
    }
  }
}

TEST(TrainOn, TurnsOfOtherShapes) {
  const auto turns = [](const char* line, const PromptOptions& options = {}) {
    return count_turns(Json::parse(line), options, "x:1");
  };
  EXPECT_EQ(turns(R"({"instruction": "d", "output": "e", "history": [["a", "b"], ["c", "d"]]})"), 3);
  EXPECT_EQ(turns(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                      {"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]})"),
            2);
  EXPECT_EQ(turns(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                      {"role": "user", "content": "c"}], "response": "d"})"),
            2);
  PromptOptions plain;
  plain.chat = false;
  EXPECT_EQ(turns(R"({"prompt": "a", "response": "b"})", plain), 1);
  expect_error(Exit::data, {"x:1"}, "no response",
               [&] { turns(R"({"messages": [{"role": "user", "content": "a"}]})"); });
}

/// With parts, each of them is a line of the order.
TEST(TrainOn, PartsOfLinesAreDrawnOnceAnEpoch) {
  const TempDir folder;
  write_file_atomic(folder / "data.jsonl", "{\"parts\": 2}\n{\"parts\": 1}\n\n{\"parts\": 3}\n");
  const auto parts_of = [](const Json& record, const std::string&) { return record["parts"].get<int64_t>(); };
  Dataset data({{folder / "data.jsonl"}}, 7, /*shuffle=*/true, parts_of);
  ASSERT_EQ(data.num_lines(), 6);
  EXPECT_EQ(data.where_line(1), folder / "data.jsonl" + ":1, turn 2");
  EXPECT_EQ(data.where_line(5), folder / "data.jsonl" + ":4, turn 3");
  EXPECT_EQ(data.part_of_line(5), 2);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::string> seen;
    for (int64_t i = 6 * epoch; i < 6 * (epoch + 1); ++i) {
      EXPECT_LT(data.part(i), data.record(i)["parts"].get<int64_t>());
      EXPECT_TRUE(data.where(i).ends_with(fmt::format("turn {}", data.part(i) + 1)));
      seen.insert(data.where(i));
    }
    EXPECT_EQ(seen.size(), 6U);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// `generate --chat` on a terminal: turns, what the keys do, and what is not shown as it is.

#include "src/core/text/printable.h"
#include "tests/support/run_fixture.h"
#include "tests/support/typed_terminal.h"

namespace temper {
namespace {

class Conversation : public RunFixture {
 protected:
  void SetUp() override { prepare_long_model(); }
  std::string generate(const std::string& options) const {
    return program_.temper() + " generate --chat --model long --threads 1 " + options;
  }
  TypedTerminal talk(const std::string& options) const {
    return {program_.folder().path(), generate(options)};
  }
  /// Answers of the verb itself to prompts in a file.
  std::vector<std::string> answers(const std::vector<Json>& conversations, const std::string& options) const {
    std::string prompts;
    for (const Json& messages : conversations) prompts += Json{{"messages", messages}}.dump() + "\n";
    program_.write("prompts.jsonl", prompts);
    EXPECT_EQ(program_.shell(generate("--prompts prompts.jsonl --out out.jsonl " + options)), 0) << output();
    std::vector<std::string> texts;
    for (const Json& line : program_.json_lines("out.jsonl"))
      texts.push_back(line.at("text").get<std::string>());
    std::filesystem::remove(program_.path("out.jsonl"));
    return texts;
  }
};

/// The second prompt has the first message and its answer in it; text is shown without control characters.
TEST_F(Conversation, TurnsAreThoseOfTheTemplate) {
  const std::string options = "--seed 3 rollout.max_new_tokens=12";
  TypedTerminal terminal = talk(options);
  EXPECT_NE(terminal.read_to("> ").find("Ctrl-D ends"), std::string::npos);
  Json messages = Json::array({{{"role", "user"}, {"content", "How many?"}}});
  const std::vector<std::string> first = answers({messages}, options);
  terminal.type("How many?\n");
  EXPECT_EQ(terminal.read_to("> "), printable(first[0]) + "\n[cut after 12 tokens]\n> ");
  Json second = messages;
  second.push_back({{"role", "assistant"}, {"content", first[0]}});
  second.push_back({{"role", "user"}, {"content", "Sure, ü?"}});
  terminal.type("\n");
  EXPECT_EQ(terminal.read_to("> "), "> ") << "an empty line is no message";
  terminal.type("not \xff text\n");
  EXPECT_NE(terminal.read_to("> ").find("byte 4 is no UTF-8"), std::string::npos);
  terminal.type("Sure, ü?\n");
  EXPECT_EQ(terminal.read_to("> "),
            printable(answers({messages, second}, options)[1]) + "\n[cut after 12 tokens]\n> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(Conversation, CtrlCStopsAnAnswerAndNotTheConversation) {
  TypedTerminal terminal = talk("rollout.ignore_eos=true rollout.max_new_tokens=16000");
  terminal.read_to("> ");
  terminal.type("\x03");
  EXPECT_EQ(terminal.read_to("> "), "\n> ") << "nothing is under way";
  for (const char* message : {"Go on.\n", "And on.\n"}) {
    terminal.type(message);
    const std::string begin = terminal.read_to(" ");
    EXPECT_EQ(begin.find('>'), std::string::npos) << begin;
    terminal.type("\x03");
    const std::string rest = terminal.read_to("\n> ");
    ASSERT_TRUE(rest.ends_with("\n> ")) << rest;
    EXPECT_EQ(rest.find("cut after"), std::string::npos) << rest;
  }
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_code(), 0);
}

/// A model that would clear the screen.
TEST_F(Conversation, ControlBytesOfTheModelAreEscaped) {
  program_.write("text.jsonl", Json{{"text", "\x1b"}}.dump() + "\n");
  ASSERT_EQ(program_.run("tokenize --tokenizer long --input text.jsonl > ids.log"), 0) << output();
  const Json ids = program_.json_lines("ids.log").at(0).at("tokens");
  ASSERT_EQ(ids.size(), 1u);
  TypedTerminal terminal =
      talk(fmt::format("rollout.logit_bias.{}=100 rollout.max_new_tokens=4", ids[0].get<int>()));
  terminal.read_to("> ");
  terminal.type("x\n");
  EXPECT_EQ(terminal.read_to("> "), "\\x1b\\x1b\\x1b\\x1b\n[cut after 4 tokens]\n> ");
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_code(), 0);
}

/// The oldest messages make room; a message that has none alone is left out.
TEST_F(Conversation, WhatNoLongerFitsIsLeftOut) {
  TypedTerminal terminal = talk("rollout.max_new_tokens=2 rollout.kv_memory=32768");
  terminal.read_to("> ");
  terminal.type("a b c d e f g h i j k l m n o p q r s t\n");
  EXPECT_NE(terminal.read_to("> ").find("[cut after 2 tokens]"), std::string::npos);
  terminal.type("a b c d e f g h i j k l m n o p q r s t\n");
  EXPECT_NE(terminal.read_to("> ").find("[the oldest 2 messages no longer fit: left out]"),
            std::string::npos);
  std::string words;
  for (int i = 0; i < 200; ++i) words += "word ";
  terminal.type(words + "\n");
  EXPECT_NE(terminal.read_to("> ").find("the message is left out]"), std::string::npos);
  terminal.type("still here\n");
  EXPECT_NE(terminal.read_to("> ").find("[cut after 2 tokens]"), std::string::npos);
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_code(), 0);
}

TEST_F(Conversation, NeedsATerminal) {
  EXPECT_EQ(program_.shell(generate("< /dev/null")), 64);
  EXPECT_TRUE(says("a terminal, which stdin is not")) << output();
  TypedTerminal terminal = talk("--samples 2");
  EXPECT_NE(terminal.read_to("--samples out").find("one answer to each message"), std::string::npos);
  EXPECT_EQ(terminal.exit_code(), 64);
}

/// They need not lie in its model folder, nor be named from here.
TEST_F(Conversation, ACheckpointHasTheTokenizerAndTheTemplateOfItsRun) {
  prepare(R"(
run.name = "run"
run.steps = 1
tokenizer.path = "words"
tokenizer.chat_template = "loud.jinja"
rollout.prompts_per_step = 1
rollout.samples_per_prompt = 2
rollout.max_new_tokens = 4
checkpoint.export_hf_every = 1
)",
          sums(2));
  program_.write("loud.jinja", "LOUD: {{ messages[0].content }}");
  ASSERT_EQ(program_.shell("mkdir words && mv model/tokenizer*.json words"), 0);
  ASSERT_EQ(program_.run("train run.toml"), 0) << output();
  program_.write("prompts.jsonl", Json{{"messages", {{{"role", "user"}, {"content", "How many?"}}}}}.dump());
  const std::string generate = program_.temper() +
                               " generate --chat --checkpoint ../runs/run --prompts ../prompts.jsonl "
                               "--threads 1 rollout.max_new_tokens=2 > ../out.log";
  ASSERT_EQ(program_.shell("cd words && " + generate), 0) << output();
  program_.write("text.jsonl", Json{{"text", "LOUD: How many?"}}.dump());
  ASSERT_EQ(program_.run("tokenize --tokenizer words --input text.jsonl > ids.log"), 0) << output();
  EXPECT_EQ(program_.json_lines("out.log").at(0).at("prompt_tokens"),
            program_.json_lines("ids.log").at(0).at("tokens"));
  // So has what is exported of it, by the run or by the verb.
  ASSERT_EQ(program_.run("export --checkpoint runs/run --out out"), 0) << output();
  for (const std::string& folder : {std::string("out/"), std::string("runs/run/export/step-000001/")}) {
    EXPECT_EQ(program_.read(folder + "chat_template.jinja"), program_.read("loud.jinja"));
    EXPECT_TRUE(program_.read(folder + "tokenizer.json") == program_.read("words/tokenizer.json"));
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

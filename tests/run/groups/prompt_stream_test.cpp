// The prompts of a run: a cursor is the whole state, dropped lines count in it, every treatment of long
// prompts, lines that cannot be used are named.

#include "src/run/groups/prompt_stream.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

constexpr const char* kFolder = "tests/golden/tokenizer/minimind";

class PromptStreamTest : public ::testing::Test {
 protected:
  PromptStreamTest() : tokenizer_(Tokenizer::load(kFolder)) { data_.chat = false; }

  std::string write(const std::string& text) const {
    write_file_atomic(dir_ / "data.jsonl", text);
    return dir_ / "data.jsonl";
  }
  /// Prompt i is i + 1 times " one": its length tells the lines apart.
  std::string counted(int64_t lines) const {
    std::string text;
    for (int64_t i = 0; i < lines; ++i) {
      std::string prompt;
      for (int64_t k = 0; k <= i; ++k) prompt += " one";
      text += Json{{"prompt", prompt}, {"answer", i}, {"response", " two two"}}.dump() + "\n";
    }
    return write(text);
  }
  PromptStream stream(const std::string& path,
                      const PromptStream::Limits& limits = {1000, 1000, false}) const {
    return PromptStream({{path}}, data_, 7, tokenizer_, nullptr, limits);
  }
  int64_t tokens(const std::string& text) const {
    return static_cast<int64_t>(tokenizer_.encode(text, false).size());
  }
  static std::vector<std::string> texts(const std::vector<DrawnPrompt>& drawn) {
    std::vector<std::string> list;
    for (const DrawnPrompt& d : drawn) list.push_back(d.prompt.text);
    return list;
  }
  void expect_refused(const std::string& text, std::vector<std::string> words,
                      const std::string& label) const {
    const std::string path = write("{\"prompt\":\"fine\"}\n" + text + "\n");
    words.push_back(path + ":2");
    PromptStream s = stream(path);
    expect_error(Exit::data, words, label, [&] { s.check_all(nullptr); });
    expect_error(Exit::data, words, label + ", drawn", [&] { s.next(2); });
    expect_error(Exit::data, words, label + ", all", [&] { s.all(0); });
  }

  TempDir dir_;
  Tokenizer tokenizer_;
  DataConfig data_;
};

TEST_F(PromptStreamTest, IdsThatTheModelLacksAreFoundFirst) {
  const std::string path =
      write("{\"prompt\":\" one\",\"response\":\" two\"}\n{\"prompt\":\" two\",\"response\":\" one\"}\n");
  const std::vector<int32_t> one = tokenizer_.encode(" one", false), two = tokenizer_.encode(" two", false);
  const int64_t largest =
      std::max(*std::max_element(one.begin(), one.end()), *std::max_element(two.begin(), two.end()));
  for (const bool with_response : {false, true}) {
    stream(path, {1000, 1000, with_response, largest + 1}).check_all(nullptr);
    expect_error(
        Exit::data,
        {fmt::format("id {}; the ids of the model are 0 to {}", largest, largest - 1), "tokenizer.path"},
        "an id too many", [&] {
          stream(path, {1000, 1000, with_response, largest}).check_all(nullptr);
        });
  }
}

/// A vision tower, which is not there, would put rows in the place of such a token.
TEST_F(PromptStreamTest, ImagesAndVideosAreRefusedWithTheirPlace) {
  const std::string path = write(
      "{\"prompt\":\" one\",\"response\":\" one\"}\n{\"prompt\":\" one two\",\"response\":\" one\"}\n"
      "{\"prompt\":\" one\",\"response\":\" two\"}\n");
  const std::vector<int32_t> one = tokenizer_.encode(" one", false), two = tokenizer_.encode(" two", false),
                             both = tokenizer_.encode(" one two", false);
  const auto media =
      std::ranges::find_if(two, [&](int32_t id) { return std::ranges::find(one, id) == one.end(); });
  ASSERT_NE(media, two.end());
  const auto place = std::ranges::find(both, *media) - both.begin() + 1;
  PromptStream::Limits limits{1000, 1000, false};
  stream(path, limits).check_all(nullptr);
  limits.media_token_ids = {int64_t{1} << 30, *media};
  const std::vector<std::string> words = {
      "a prompt holds an image or a video", path + ":2",
      fmt::format("token {} at place {} of {}", *media, place, both.size())};
  expect_error(Exit::data, words, "all lines", [&] { stream(path, limits).check_all(nullptr); });
  expect_error(Exit::data, words, "validation", [&] { stream(path, limits).all(0); });
  limits.with_response = true;
  const std::string last = write("{\"prompt\":\" one\",\"response\":\" two\"}\n");
  expect_error(Exit::data, {"a response holds an image or a video", last + ":1"}, "response",
               [&] { stream(last, limits).check_all(nullptr); });
}

TEST_F(PromptStreamTest, EveryLineOncePerEpochWithItsRecord) {
  PromptStream s = stream(counted(9));
  const std::vector<DrawnPrompt> drawn = s.next(9);
  ASSERT_EQ(drawn.size(), 9u);
  std::set<int64_t> answers;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const DrawnPrompt& d = drawn[i];
    EXPECT_EQ(d.position, static_cast<int64_t>(i));
    EXPECT_EQ(d.prompt.text, d.record->at("prompt").get<std::string>());
    EXPECT_EQ(d.prompt.tokens, tokenizer_.encode(d.prompt.text, false));
    EXPECT_EQ(d.prompt.answer, d.record->at("answer").dump());
    EXPECT_TRUE(d.prompt.response_tokens.empty());
    answers.insert(d.record->at("answer").get<int64_t>());
  }
  EXPECT_EQ(answers.size(), 9u);
  EXPECT_EQ(s.position(), 9);
}

TEST_F(PromptStreamTest, TheCursorIsTheWholeState) {
  data_.overlong = "drop";
  const std::string path = counted(11);
  const PromptStream::Limits limits{tokens(" one one one one one one one"), 1000, false};
  PromptStream whole = stream(path, limits);
  for (int64_t step = 0; step < 12; ++step) {
    PromptStream resumed = stream(path, limits);
    resumed.set_position(whole.position());
    const std::vector<DrawnPrompt> a = whole.next(5), b = resumed.next(5);
    EXPECT_EQ(texts(a), texts(b)) << step;
    for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].position, b[i].position);
    EXPECT_EQ(whole.position(), resumed.position());
    EXPECT_EQ(whole.position(), a.back().position + 1) << "lines that were dropped count";
  }
  EXPECT_GT(whole.position(), 60) << "some were dropped";
}

TEST_F(PromptStreamTest, CallsMayBeCutInAnyWay) {
  const std::string path = counted(7);
  PromptStream one = stream(path), many = stream(path);
  const std::vector<std::string> all = texts(one.next(20));
  std::vector<std::string> pieces;
  for (int64_t count : {0, 1, 2, 3, 14})
    for (const std::string& text : texts(many.next(count))) pieces.push_back(text);
  EXPECT_EQ(pieces, all);
}

TEST_F(PromptStreamTest, LongPromptsAreRefusedDroppedOrCut) {
  const std::string path = counted(6);
  const int64_t limit = tokens(" one one one");
  data_.overlong = "error";
  PromptStream strict = stream(path, {limit, 1000, false});
  expect_error(Exit::data, {path, std::to_string(limit), "data.overlong"}, "error",
               [&] { strict.check_all(nullptr); });
  expect_error(Exit::data, {path, std::to_string(limit)}, "error, drawn", [&] { strict.next(6); });
  data_.overlong = "drop";
  EXPECT_EQ(texts(stream(path, {limit, 1000, false}).all(0)),
            (std::vector<std::string>{" one", " one one", " one one one"}));
  data_.overlong = "truncate-left";
  const std::vector<DrawnPrompt> cut = stream(path, {limit, 1000, false}).all(0);
  ASSERT_EQ(cut.size(), 6u);
  for (const DrawnPrompt& d : cut) {
    const std::vector<int32_t> whole = tokenizer_.encode(d.prompt.text, false);
    const auto keep = std::min<size_t>(whole.size(), static_cast<size_t>(limit));
    EXPECT_EQ(d.prompt.tokens,
              std::vector<int32_t>(whole.end() - static_cast<std::ptrdiff_t>(keep), whole.end()));
  }
}

/// A prompt is drawn again as unfinished responses need it: cut as it was, over epochs and dropped lines, the
/// cursor left alone.
TEST_F(PromptStreamTest, APositionGivesWhatWasDrawnThere) {
  for (const char* overlong : {"truncate-left", "drop"}) {
    data_.overlong = overlong;
    PromptStream s = stream(counted(5), {tokens(" one one one"), 1000, false});
    const std::vector<DrawnPrompt> drawn = s.next(12);
    const int64_t position = s.position();
    for (const DrawnPrompt& d : drawn) {
      const DrawnPrompt again = s.at(d.position);
      EXPECT_EQ(again.position, d.position);
      EXPECT_EQ(again.prompt.tokens, d.prompt.tokens) << overlong;
      EXPECT_EQ(*again.record, *d.record);
    }
    EXPECT_EQ(s.position(), position);
  }
}

TEST_F(PromptStreamTest, WhenNothingFitsTheRunEnds) {
  data_.overlong = "drop";
  PromptStream s =
      stream(write("{\"prompt\":\" one one one one\"}\n{\"prompt\":\" one one one\"}\n"), {1, 1000, false});
  expect_error(Exit::data, {"data.train", "rollout.max_prompt_tokens"}, "drawn", [&] { s.next(1); });
  expect_error(Exit::data, {"data.train", "rollout.max_prompt_tokens"}, "checked",
               [&] { s.check_all(nullptr); });
}

TEST_F(PromptStreamTest, ResponsesCountForTheLengthOfSequences) {
  const std::string path = counted(5);
  const int64_t response =
      static_cast<int64_t>(stream(path, {1000, 1000, true}).all(1)[0].prompt.response_tokens.size());
  ASSERT_GT(response, 0);
  data_.overlong = "drop";
  const int64_t limit = tokens(" one one") + response;
  EXPECT_EQ(texts(stream(path, {1000, limit, true}).all(0)), (std::vector<std::string>{" one", " one one"}));
  data_.overlong = "truncate-left";  // a cut prompt would be another example
  PromptStream s = stream(path, {1000, limit, true});
  expect_error(Exit::data, {path + ":3", std::to_string(limit)}, "cut", [&] { s.all(0); });
}

TEST_F(PromptStreamTest, AllGoesInFileOrderAndLeavesTheCursor) {
  PromptStream s = stream(counted(5));
  s.next(2);
  EXPECT_EQ(texts(s.all(0)).size(), 5u);
  EXPECT_EQ(texts(s.all(3)), (std::vector<std::string>{" one", " one one", " one one one"}));
  EXPECT_EQ(texts(s.all(100)).size(), 5u);
  EXPECT_EQ(s.position(), 2);
}

TEST_F(PromptStreamTest, CheckAllShowsEveryAnswerWithItsLine) {
  const std::string path = write(
      "{\"prompt\":\"a\",\"answer\":\"x\"}\n\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\",\"answer\":1.50}\n");
  std::vector<std::string> seen;
  stream(path).check_all(
      [&](const Prompt& p, const std::string& where) { seen.push_back(where + " " + p.answer); });
  const std::string without = path + ":3, which has no key \"answer\" (data.answer_key) ";
  EXPECT_EQ(seen, (std::vector<std::string>{path + ":1 x", without, path + ":4 1.5"}));
}

TEST_F(PromptStreamTest, LinesThatCannotBeUsedAreNamed) {
  expect_refused("{\"answer\":\"5\"}", {"prompt", "missing"}, "no prompt");
  expect_refused("{\"prompt\":5}", {"prompt", "number"}, "a number");
  expect_refused("{\"prompt\":null}", {"prompt"}, "null");
  expect_refused("{\"prompt\":[\"a\"]}", {"prompt", "array"}, "an array");
  expect_refused("{\"prompt\":\"\"}", {"no tokens"}, "an empty prompt");
}

TEST_F(PromptStreamTest, ToolsThatTheTemplateDoesNotShowAreRefused) {
  data_.chat = true;
  const std::string path = write(
      "{\"prompt\":\"a\",\"tools\":[]}\n"
      "{\"prompt\":\"b\",\"response\":\"c\",\"tools\":[{\"name\":\"add\"}]}\n");
  const std::string messages = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
  const ChatTemplate without(messages, "test"), shows("{{ tools }}" + messages, "test");
  const auto stream_of = [&](const ChatTemplate& chat, bool response) {
    return PromptStream({{path}}, data_, 7, tokenizer_, &chat, {1000, 1000, response});
  };
  const std::vector<std::string> words{path + ":2", "no place for the tools", "`tools`, which has 1 tool"};
  expect_error(Exit::data, words, "prompt", [&] { stream_of(without, false).check_all(nullptr); });
  EXPECT_NO_THROW(stream_of(shows, false).check_all(nullptr));
  data_.train_on = "all";
  write(
      "{\"prompt\":\"a\",\"response\":\"c\"}\n"
      "{\"prompt\":\"b\",\"response\":\"c\",\"tools\":[{\"name\":\"add\"}]}\n");
  expect_error(Exit::data, words, "all turns", [&] { stream_of(without, true).check_all(nullptr); });
  data_.train_on = "last";
  data_.chat_arguments = parse_json(R"({"tools": [{"name": "add"}, {"name": "take"}]})", "tools");
  write("{\"prompt\":\"a\",\"tools\":[]}\n{\"prompt\":\"b\"}\n");
  const std::vector<std::string> of_all{path + ":2", "the tools of data.chat_arguments", "has 2 tools"};
  expect_error(Exit::data, of_all, "of all lines", [&] { stream_of(without, false).check_all(nullptr); });
  EXPECT_NO_THROW(stream_of(shows, false).check_all(nullptr));
}

/// Found before the first of them is drawn.
TEST_F(PromptStreamTest, LinesNameAProgramThatPlaysThem) {
  const std::string path = write(
      "{\"prompt\":\"a\",\"environment\":\"games\"}\n"
      "{\"prompt\":\"b\",\"environment\":\"game\"}\n");
  PromptStream::Limits limits{1000, 1000, false};
  EXPECT_NO_THROW(stream(path, limits).check_all(nullptr)) << "no program plays them";
  limits.harnesses = {{.name = "games"}, {.name = "tools"}};
  const std::vector<std::string> words{path + ":2", "\"game\"", "did you mean", "games, tools"};
  expect_error(Exit::data, words, "training", [&] { stream(path, limits).check_all(nullptr); });
  expect_error(Exit::data, words, "validation", [&] { stream(path, limits).all(0); });
}

TEST_F(PromptStreamTest, ReasonsThatAreTrue) {
  expect_refused("{\"tokens\":[]}", {"\"tokens\"", "the list is empty"}, "no ids");
  expect_refused("{\"tokens\":\"1\"}", {"\"tokens\"", "it is a string"}, "ids as text");
  expect_refused("{\"prompt\":[1]}", {"it is an array"}, "an array");
  expect_refused("{\"prompt\":{}}", {"it is an object"}, "an object");
  expect_refused(R"({"prompt":[{"role":"user","content":"1"}]})",
                 {"a list of chat messages", "data.messages_key = \"prompt\"", "data.chat = true"},
                 "messages");
  const Tokenizer digits = Tokenizer::load("tests/golden/tinyzero");
  PromptStream letters({{write("{\"prompt\":\"seven\"}\n")}}, data_, 0, digits, nullptr, {1000, 1000, false});
  expect_error(Exit::data, {"no token for any of its text", "\"seven\"", "tokenizer.path"}, "letters",
               [&] { letters.next(1); });
}

/// Lines as verl's data tools write them.
TEST_F(PromptStreamTest, VerlsLines) {
  const std::string line =
      R"({"prompt":[{"role":"user","content":"1+1?"}],"reward_model":{"style":"rule","ground_truth":"2"}})";
  const std::string path = write(line + "\n");
  data_.chat = true;
  data_.messages_key = "prompt";
  const std::optional<ChatTemplate> chat = ChatTemplate::load(kFolder);
  std::string where;
  const auto note = [&](const Prompt&, const std::string& place) { where = place; };
  PromptStream({{path}}, data_, 0, tokenizer_, &*chat, {1000, 1000, false}).check_all(note);
  EXPECT_NE(where.find("no key \"answer\""), std::string::npos) << where;
  EXPECT_NE(where.find("data.answer_key = \"reward_model.ground_truth\""), std::string::npos) << where;
  data_.answer_key = "reward_model.ground_truth";
  PromptStream s({{path}}, data_, 0, tokenizer_, &*chat, {1000, 1000, false});
  s.check_all(note);
  EXPECT_EQ(where, path + ":1");
  EXPECT_EQ(s.next(1)[0].prompt.answer, "2");
}

TEST_F(PromptStreamTest, ChatRendersThroughTheTemplate) {
  data_.chat = true;
  const std::optional<ChatTemplate> chat = ChatTemplate::load(kFolder);
  ASSERT_TRUE(chat);
  data_.system_prompt = "Be brief.";
  PromptStream s({{write("{\"prompt\":\"Say one.\"}\n")}}, data_, 0, tokenizer_, &*chat, {1000, 1000, false});
  const std::string text = s.next(1)[0].prompt.text;
  EXPECT_NE(text.find("Be brief."), std::string::npos) << text;
  EXPECT_NE(text.find("Say one."), std::string::npos) << text;
  EXPECT_GT(text.size(), std::string("Be brief.Say one.").size());
  expect_error(Exit::usage, {"data.chat"}, "no template", [&] { stream(dir_ / "data.jsonl"); });
}

/// With data.train_on = "each" the turns of a line are drawn one by one, and the order says which.
TEST_F(PromptStreamTest, EachTurnOfALineIsDrawn) {
  const auto say = [](const char* role, const std::string& text) {
    return Json{{"role", role}, {"content", text}};
  };
  std::string lines;
  for (int i = 0; i < 3; ++i) {
    Json messages = Json::array();
    for (int turn = 0; turn <= i; ++turn) {
      messages.push_back(say("user", fmt::format("question {} {}", i, turn)));
      messages.push_back(say("assistant", fmt::format("answer {} {}", i, turn)));
    }
    lines += Json{{"messages", messages}}.dump() + "\n";
  }
  const std::string path = write(lines);
  const ChatTemplate chat(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "test");
  data_.chat = true;
  data_.train_on = "each";
  PromptStream each({{path}}, data_, 7, tokenizer_, &chat, {1000, 1000, /*with_response=*/true});
  EXPECT_EQ(each.num_lines(), 6);
  EXPECT_EQ(each.count_fitting(), 6);
  std::multiset<std::string> drawn, all;
  for (const DrawnPrompt& d : each.next(6)) {
    drawn.insert(d.prompt.response);
    EXPECT_EQ(each.at(d.position).prompt.response, d.prompt.response);
    EXPECT_TRUE(d.prompt.text.ends_with("</><assistant>") || d.prompt.text.ends_with("0</><assistant>"));
  }
  for (const DrawnPrompt& d : each.all(0)) all.insert(d.prompt.response);
  EXPECT_EQ(drawn, all);
  EXPECT_EQ(all, (std::multiset<std::string>{"answer 0 0</>", "answer 1 0</>", "answer 1 1</>",
                                             "answer 2 0</>", "answer 2 1</>", "answer 2 2</>"}));
  // Prompts that are generated for are whole lines.
  PromptStream prompts({{path}}, data_, 7, tokenizer_, &chat, {1000, 1000, false});
  EXPECT_EQ(prompts.num_lines(), 3);
  data_.train_on = "all";
  PromptStream whole({{path}}, data_, 7, tokenizer_, &chat, {1000, 1000, true});
  EXPECT_EQ(whole.num_lines(), 3);
  const Prompt last = whole.all(0).back().prompt;
  EXPECT_EQ(last.response_mask.size(), last.response_tokens.size());
  EXPECT_TRUE(last.response.starts_with("answer 2 0</><user>question 2 1</><assistant>answer 2 1</>"))
      << last.response;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

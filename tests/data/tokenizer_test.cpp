// Tokenizers against the golden ids of tools/golden/golden_tokenizer.py (Hugging Face tokenizers), hostile files,
// worst cases, streaming. `--corpus=DIR` compares with a big corpus made by the same script. The tokenizers
// of Qwen and DeepSeek are too large for the repository; their golden ids are checked where real data is
// (tests/support/real_data.h).

#include "src/data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/data/tokenizer/text.h"
#include "tests/support/real_data.h"

namespace temper {
namespace {

const std::string kGolden = "tests/golden/tokenizer";

std::string& corpus_folder() {
  static std::string folder;
  return folder;
}

/// A folder that lives as long as the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tokenizer_test_XXXXXX").string();
    CHECK(mkdtemp(pattern.data()), "no temporary folder {}", pattern);
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
  }

 private:
  std::string path_;
};

std::vector<int32_t> ids_of(const Json& value) { return value.get<std::vector<int32_t>>(); }

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string text;
  for (int32_t id : ids) {
    const std::string chunk = stream.push(id);
    EXPECT_FALSE(find_invalid_utf8(chunk)) << "chunk of token " << id << " is not UTF-8";
    text += chunk;
  }
  return text + stream.finish();
}

/// One golden line; true if everything is equal.
bool check_case(const Tokenizer& tokenizer, const Json& row) {
  const std::vector<int32_t> ids = ids_of(row["i"]);
  bool same = true;
  if (row.contains("t")) {
    const std::string text = row["t"];
    same = tokenizer.encode(text, false) == ids;
    same = same && tokenizer.encode(text, true) == (row.contains("a") ? ids_of(row["a"]) : ids);
  }
  const std::string decoded = row.value("d", row.value("t", ""));
  const std::string bare = row.value("s", decoded);
  same = same && tokenizer.decode(ids, false) == decoded && tokenizer.decode(ids, true) == bare;
  return same && streamed(tokenizer, ids, false) == decoded && streamed(tokenizer, ids, true) == bare;
}

std::string describe(const Tokenizer& tokenizer, const Json& row) {
  std::string text = "golden " + dump_json_line(row);
  if (row.contains("t"))
    text += "\nids    " + dump_json_line(Json(tokenizer.encode(row["t"].get<std::string>(), false)));
  return text + "\ntext   " + dump_json_line(Json(tokenizer.decode(ids_of(row["i"]), false)));
}

void check_file(const Tokenizer& tokenizer, const std::string& path) {
  std::ifstream lines(path);
  ASSERT_TRUE(lines) << path;
  int64_t cases = 0;
  int64_t differences = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const Json row = parse_json(line, path);
    if (check_case(tokenizer, row)) continue;
    if (++differences <= 10) ADD_FAILURE() << path << ":" << cases + 1 << "\n" << describe(tokenizer, row);
  }
  EXPECT_GT(cases, 0) << path;
  EXPECT_EQ(differences, 0) << path;
  std::printf("%s: %lld cases, %lld differences\n", path.c_str(), static_cast<long long>(cases),
              static_cast<long long>(differences));
}

/// Applies the patches of `path` to the tokenizer in `folder` and compares each result.
void check_variants(const std::string& folder, const std::string& path) {
  std::ifstream lines(path);
  ASSERT_TRUE(lines) << path;
  const Json base = read_json_file(folder + "/tokenizer.json");
  int64_t cases = 0;
  int64_t differences = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json variant = parse_json(line, path);
    Json tree = base;
    for (const auto& [key, value] : variant["patch"].items()) {
      if (key == "model")
        tree[key].update(value);
      else
        tree[key] = value;
    }
    TempFolder temp;
    temp.write("tokenizer.json", tree.dump());
    const Tokenizer tokenizer = Tokenizer::load(temp.path());
    for (const Json& row : variant["cases"]) {
      ++cases;
      if (check_case(tokenizer, row)) continue;
      if (++differences <= 10) ADD_FAILURE() << variant["name"] << "\n" << describe(tokenizer, row);
    }
  }
  EXPECT_EQ(differences, 0) << path;
  std::printf("%s: %lld cases, %lld differences\n", path.c_str(), static_cast<long long>(cases),
              static_cast<long long>(differences));
}

const Tokenizer& minimind() {
  static const Tokenizer tokenizer = Tokenizer::load(kGolden + "/minimind");
  return tokenizer;
}

TEST(TokenizerGolden, MiniMind) { check_file(minimind(), kGolden + "/minimind.jsonl"); }

/// Marks go with letters, as in the pattern of Qwen3.5: 77 of its texts have other ids with that of Qwen3.
TEST(TokenizerGolden, MarksGoWithLetters) {
  check_file(Tokenizer::load(kGolden + "/qwen3.5"), kGolden + "/qwen3.5.jsonl");
}
TEST(TokenizerGolden, Llama3Style) {
  check_file(Tokenizer::load(kGolden + "/llama3"), kGolden + "/llama3.jsonl");
  check_variants(kGolden + "/llama3", kGolden + "/llama3/variants.jsonl");
}
TEST(TokenizerGolden, Llama2Style) {
  check_file(Tokenizer::load(kGolden + "/llama2"), kGolden + "/llama2.jsonl");
  check_variants(kGolden + "/llama2", kGolden + "/llama2/variants.jsonl");
}

class SharedTokenizer : public ::testing::TestWithParam<const char*> {};
TEST_P(SharedTokenizer, Golden) {
  TempFolder temp;
  if (!unpack_tokenizer(GetParam(), temp.path()))
    GTEST_SKIP() << how_to_get(real_data(std::string("tokenizers/") + GetParam()));
  const Tokenizer tokenizer = Tokenizer::load(temp.path());
  check_file(tokenizer, kGolden + "/" + GetParam() + ".jsonl");
  EXPECT_TRUE(tokenizer.eos_id().has_value());
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.eos_id()));
}
INSTANTIATE_TEST_SUITE_P(Large, SharedTokenizer, ::testing::Values("qwen2.5", "qwen3", "deepseek-v3"));

TEST(TokenizerCorpus, Equal) {
  if (corpus_folder().empty()) GTEST_SKIP() << "no --corpus=DIR (tools/golden/golden_tokenizer.py corpus makes one)";
  for (const auto& entry : std::filesystem::directory_iterator(corpus_folder())) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path().string();
    check_file(Tokenizer::load(folder), folder + ".jsonl");
    if (path_exists(folder + "/variants.jsonl")) check_variants(folder, folder + "/variants.jsonl");
  }
}

/// The error that `call` has to throw.
Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Exit::ok, {.what = ""});
}

/// A small valid byte-level file to break.
Json small_file() {
  return parse_json(R"({
    "version": "1.0",
    "added_tokens": [{"id": 4, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {"a": 0, "b": 1, "ab": 2, "ba": 3}, "merges": ["a b", ["b", "a"]]}})",
                    "small file");
}

TEST(Tokenizer, SmallApi) {
  Tokenizer moved = Tokenizer::load(kGolden + "/minimind");
  const Tokenizer tokenizer = std::move(moved);
  EXPECT_EQ(tokenizer.vocab_size(), 6400);
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer.eos_id(), 2);
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(6400));
  EXPECT_EQ(tokenizer.special_token("bos_token"), "<|im_start|>");
  EXPECT_EQ(tokenizer.special_token("pad_token"), "<|endoftext|>");
  EXPECT_EQ(tokenizer.special_token("cls_token"), std::nullopt);
  EXPECT_EQ(tokenizer.token_bytes(2), "<|im_end|>");
  const auto newline = tokenizer.token_id("\u010a");
  ASSERT_TRUE(newline.has_value());
  EXPECT_EQ(tokenizer.token_bytes(*newline), "\n");
}

TEST(Tokenizer, SkipsSpecialTokensThatNormalisationChanges) {
  Json file = small_file();
  file["added_tokens"][0]["content"] = "e\u0301";
  file["added_tokens"][0]["normalized"] = true;
  TempFolder temp;
  temp.write("tokenizer.json", file.dump());
  const Tokenizer tokenizer = Tokenizer::load(temp.path());
  const std::vector<int32_t> ids = tokenizer.encode("ab\u00e9b", false);
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 4, 1}));
  EXPECT_EQ(tokenizer.decode(ids, true), "abb");
}

TEST(Tokenizer, RefusesBadInput) {
  const Error out_of_range = error_of([] { minimind().decode(std::vector<int32_t>{5, 6400}, false); });
  EXPECT_EQ(out_of_range.code(), Exit::data);
  EXPECT_NE(std::string(out_of_range.what()).find("6400"), std::string::npos);
  EXPECT_NE(std::string(out_of_range.what()).find("6399"), std::string::npos);
  EXPECT_EQ(error_of([] { minimind().token_bytes(-1); }).code(), Exit::data);
  const std::pair<std::string, int> texts[] = {{"abc\xff", 3},    {"\xc3(", 0},
                                               {"a\xe2\x82", 1},  {"\xed\xa0\x80", 0},
                                               {"ab\xc0\x80", 2}, {"\xf4\x90\x80\x80", 0}};
  for (const auto& [text, offset] : texts) {
    const Error error = error_of([&, &bytes = text] { minimind().encode(bytes, false); });
    EXPECT_EQ(error.code(), Exit::data);
    EXPECT_NE(error.problem().where.find(fmt::format("byte {} of", offset)), std::string::npos)
        << error.what();
  }
}

TEST(Tokenizer, StreamHoldsBackIncompleteCharacters) {
  const std::string text = "x\U0001FAE0\u4f60";
  const std::vector<int32_t> ids = minimind().encode(text, false);
  StreamDecoder stream(minimind(), true);
  std::string seen;
  size_t held = 0;
  for (int32_t id : ids) {
    const std::string chunk = stream.push(id);
    held += chunk.empty() ? 1 : 0;
    seen += chunk;
    EXPECT_TRUE(text.starts_with(seen)) << "after " << seen.size() << " bytes";
  }
  EXPECT_GT(held, 0u) << "no token of this text ends inside a character";
  EXPECT_EQ(seen, text);
  EXPECT_EQ(stream.finish(), "");
  StreamDecoder cut(minimind(), true);
  std::string rest;
  for (size_t i = 0; i < 2; ++i) rest += cut.push(ids[i]);
  EXPECT_EQ(rest + cut.finish(), "x\uFFFD");
}

TEST(Tokenizer, ThreadsShareOne) {
  std::vector<std::string> texts;
  std::ifstream lines(kGolden + "/minimind.jsonl");
  for (std::string line; std::getline(lines, line);)
    texts.push_back(parse_json(line, "golden").value("t", "decode only"));
  std::vector<std::vector<int32_t>> expected;
  for (const auto& text : texts)
    expected.push_back(Tokenizer::load(kGolden + "/minimind").encode(text, false));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round)
        for (size_t i = 0; i < texts.size(); ++i)
          wrong[static_cast<size_t>(t)] += minimind().encode(texts[i], false) == expected[i] ? 0 : 1;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

struct Broken {
  const char* expected;  // part of the message
  std::function<void(Json&)> edit;
};

const std::vector<Broken>& broken_files() {
  auto pattern = [](const char* regex) {
    return [regex](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex; };
  };
  static const std::vector<Broken> files = {
      {"model.type \"Unigram\"", [](Json& f) { f["model"]["type"] = "Unigram"; }},
      {"version \"2.0\"", [](Json& f) { f["version"] = "2.0"; }},
      {"model null", [](Json& f) { f.erase("model"); }},
      {"lacks the key \"vocab\"", [](Json& f) { f["model"].erase("vocab"); }},
      {"lacks the key \"merges\"", [](Json& f) { f["model"].erase("merges"); }},
      {"the id of \"a\" is not an integer", [](Json& f) { f["model"]["vocab"]["a"] = "0"; }},
      {"the id of \"a\" is not an integer", [](Json& f) { f["model"]["vocab"]["a"] = Json::array({0}); }},
      {"has the id 1 twice", [](Json& f) { f["model"]["vocab"]["a"] = 1; }},
      {"the id -1", [](Json& f) { f["model"]["vocab"]["a"] = -1; }},
      {"the id 2000000000", [](Json& f) { f["model"]["vocab"]["a"] = 2000000000; }},
      {"the id 9223372036854775807", [](Json& f) { f["model"]["vocab"]["a"] = UINT64_MAX; }},
      {"has no tokens", [](Json& f) { f["model"]["vocab"] = Json::object(); }},
      {"has an empty token", [](Json& f) { f["model"]["vocab"][""] = 9; }},
      {"[0] needs the token \"c\"", [](Json& f) { f["model"]["merges"] = {"a c"}; }},
      {"[0] needs the token \"aa\"", [](Json& f) { f["model"]["merges"] = {"a a"}; }},
      {"model.merges[0] \"a b c\"", [](Json& f) { f["model"]["merges"] = {"a b c"}; }},
      {"model.merges[1] has 3 parts",
       [](Json& f) {
         f["model"]["merges"][1] = {"a", "b", "c"};
       }},
      {"model.merges[0] is neither", [](Json& f) { f["model"]["merges"] = {7}; }},
      {"model.dropout 0.1", [](Json& f) { f["model"]["dropout"] = 0.1; }},
      {"model.end_of_word_suffix", [](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.unk_token \"<u>\"", [](Json& f) { f["model"]["unk_token"] = "<u>"; }},
      {"model.surprise", [](Json& f) { f["model"]["surprise"] = 1; }},
      {"added_tokens[0].id 7", [](Json& f) { f["added_tokens"][0]["id"] = 7; }},
      {"added_tokens[0].content", [](Json& f) { f["added_tokens"][0]["content"] = ""; }},
      {"added_tokens[1].content",
       [](Json& f) {
         f["added_tokens"].push_back(f["added_tokens"][0]);
         f["added_tokens"][1]["id"] = 5;
       }},
      {"added_tokens[0] lacks the key \"special\"", [](Json& f) { f["added_tokens"][0].erase("special"); }},
      {"normalizer.type \"Lowercase\"", [](Json& f) { f["normalizer"]["type"] = "Lowercase"; }},
      {"pre_tokenizer.pretokenizers[0].behavior",
       [](Json& f) { f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Gone"; }},
      {"pre_tokenizer.pretokenizers[2]",
       [](Json& f) {
         f["pre_tokenizer"]["pretokenizers"].push_back(f["pre_tokenizer"]["pretokenizers"][0]);
       }},
      {"pre_tokenizer.pretokenizers[1].type \"Whitespace\"",
       [](Json& f) {
         f["pre_tokenizer"]["pretokenizers"][1] = {{"type", "Whitespace"}};
       }},
      {"intersects classes with `&&`", pattern("[\\p{L}&&[^\\p{Han}]]+")},
      {"class inside a class", pattern("[a[b]]")},
      {"closes a group", pattern("a)")},
      {"not a usable regular expression", pattern("(a")},
      {"kind of group", pattern("(?R)a")},
      {"kind of group", pattern("(*LIMIT_MATCH=9)a")},
      {"repeats more than 1000", pattern("a{1,100000}")},
      {"behind a `{n,m}` count", pattern("a{1,3}+")},
      {"the escape `\\1`", pattern("(a)\\1")},
      {"the property \\p{Klingon}", pattern("\\p{Klingon}")},
      {"nests groups",
       [](Json& f) {
         f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
             std::string(100, '(') + std::string(100, ')');
       }},
      {"post_processor.type \"BertProcessing\"",
       [](Json& f) {
         f["post_processor"] = {{"type", "BertProcessing"}};
       }},
      {"post_processor.single",
       [](Json& f) {
         f["post_processor"] = {
             {"type", "TemplateProcessing"}, {"single", Json::array()}, {"special_tokens", {}}};
       }},
      {"names no token",
       [](Json& f) {
         f["post_processor"] =
             parse_json(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}},
               {"Sequence":{"id":"A","type_id":0}}],
               "special_tokens":{"x":{"id":"x","ids":[99],"tokens":["x"]}}})",
                        "edit");
       }},
      {"decoder.type \"WordPiece\"", [](Json& f) { f["decoder"]["type"] = "WordPiece"; }},
      {"is not an object", [](Json& f) { f["decoder"] = "ByteLevel"; }},
  };
  return files;
}

TEST(Tokenizer, RefusesBrokenFiles) {
  TempFolder valid;
  valid.write("tokenizer.json", small_file().dump());
  EXPECT_EQ(Tokenizer::load(valid.path()).encode("ab<e>b", false), (std::vector<int32_t>{0, 1, 4, 1}));
  for (const Broken& broken : broken_files()) {
    Json file = small_file();
    broken.edit(file);
    TempFolder temp;
    temp.write("tokenizer.json", file.dump());
    const Error error = error_of([&] { Tokenizer::load(temp.path()); });
    EXPECT_EQ(error.code(), Exit::data) << broken.expected;
    EXPECT_NE(std::string(error.what()).find(broken.expected), std::string::npos)
        << "expected: " << broken.expected << "\n"
        << error.what();
  }
}

TEST(Tokenizer, RefusesBrokenText) {
  const std::pair<std::string, const char*> texts[] = {
      {"", "parse error"},
      {"[1]", "not a JSON object"},
      {"{\"model\":{\"vocab\":{\"a\":0", "parse error"},
      {"{\"version\":\"1.0\",\"version\":\"1.0\"}", "duplicate key \"version\""},
      {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}",
       "has the token of id 1 twice"},
      {"{\"x\":" + std::string(100, '[') + std::string(100, ']') + "}", "nested deeper than 64"},
      {"{\"x\":\"\xff\"}", "parse error"},
      {small_file().dump() + std::string("\0x", 2), "a zero byte"}};
  for (const auto& [text, expected] : texts) {
    TempFolder temp;
    temp.write("tokenizer.json", text);
    const Error error = error_of([&] { Tokenizer::load(temp.path()); });
    EXPECT_EQ(error.code(), Exit::data);
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
  }
  EXPECT_EQ(error_of([] { Tokenizer::load(kGolden + "/absent"); }).code(), Exit::usage);
  TempFolder temp;
  EXPECT_EQ(error_of([&] { Tokenizer::load(temp.path()); }).code(), Exit::data);
  temp.write("tokenizer.json", small_file().dump());
  temp.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  const Error error = error_of([&] { Tokenizer::load(temp.path()); });
  EXPECT_NE(std::string(error.what()).find("eos_token"), std::string::npos) << error.what();
}

/// Steps that double a text, one behind the other.
Json doublings(int count) {
  Json steps = Json::array();
  for (int i = 0; i < count; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  return steps;
}

TEST(Tokenizer, TextsGrowOnlySoFar) {
  constexpr int kMany = 26;  // 64 MB of one letter
  TempFolder temp;
  Json file = small_file();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", doublings(kMany)}};
  temp.write("tokenizer.json", file.dump());
  const Tokenizer tokenizer = Tokenizer::load(temp.path());
  EXPECT_FALSE(tokenizer.encode("b", false).empty());
  const Error of_text = error_of([&] { tokenizer.encode("ab", false); });
  EXPECT_NE(std::string(of_text.what()).find("grows too much"), std::string::npos) << of_text.what();

  file = small_file();
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = {{"type", "Sequence"}, {"decoders", doublings(kMany)}};
  temp.write("tokenizer.json", file.dump());
  const Error of_token = error_of([&] { Tokenizer::load(temp.path()); });
  EXPECT_NE(std::string(of_token.what()).find("grows too much"), std::string::npos) << of_token.what();
}

TEST(Tokenizer, CostlyPatternEnds) {
  Json file = small_file();
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:a|aa)+c";
  TempFolder temp;
  temp.write("tokenizer.json", file.dump());
  const Tokenizer tokenizer = Tokenizer::load(temp.path());
  const Error error = error_of([&] { tokenizer.encode(std::string(200, 'a') + "!c", false); });
  EXPECT_EQ(error.code(), Exit::data);
  EXPECT_NE(std::string(error.what()).find("costs too much"), std::string::npos) << error.what();
}

double seconds_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

/// One MiB of anything takes less than a second; with quadratic work, hours.
void check_worst_cases(const std::string& name, const Tokenizer& tokenizer) {
  for (const char* unit : {"a", " ", "\n", "!", "1", "\u00e9", "\u4f60", " \n", "\x01", "a\u0301\u0323",
                           "\u0301\u0323", "<|", " a", "\t \r\n"}) {
    const std::string text = repeated(unit, size_t{1} << 20);
    std::vector<int32_t> ids;
    const double taken = seconds_of([&] { ids = tokenizer.encode(text, false); });
    std::printf("%-12s 1 MiB of %-22s %.3f s, %zu tokens\n", name.c_str(), dump_json_line(Json(unit)).c_str(),
                taken, ids.size());
    EXPECT_LT(taken, 60.0) << name << ": " << unit;
    EXPECT_FALSE(ids.empty());
  }
}

TEST(TokenizerSpeed, WorstCases) {
  check_worst_cases("minimind", minimind());
  check_worst_cases("llama3", Tokenizer::load(kGolden + "/llama3"));
  check_worst_cases("llama2", Tokenizer::load(kGolden + "/llama2"));
  for (const char* name : {"qwen3", "deepseek-v3"}) {
    TempFolder temp;
    if (unpack_tokenizer(name, temp.path())) check_worst_cases(name, Tokenizer::load(temp.path()));
  }
}

TEST(TokenizerSpeed, Gsm8k) {
  TempFolder temp;
  const std::string questions = real_data("gsm8k/train.jsonl");
  if (!path_exists(questions) || !unpack_tokenizer("qwen3", temp.path()))
    GTEST_SKIP() << how_to_get(questions);
  std::string text;
  std::ifstream lines(questions);
  for (std::string line; std::getline(lines, line);) {
    const Json row = parse_json(line, "gsm8k");
    text += row["question"].get<std::string>() + "\n" + row["answer"].get<std::string>() + "\n";
  }
  std::vector<int32_t> ids;
  for (const char* name : {"qwen2.5", "qwen3", "deepseek-v3"}) {
    TempFolder folder;
    ASSERT_TRUE(unpack_tokenizer(name, folder.path()));
    double load = 0;
    load = seconds_of([&] { Tokenizer::load(folder.path()); });
    const Tokenizer tokenizer = Tokenizer::load(folder.path());
    const double first = seconds_of([&] { ids = tokenizer.encode(text, false); });
    const double second = seconds_of([&] { ids = tokenizer.encode(text, false); });
    std::printf("%s: loaded in %.2f s; %.1f MB, %zu tokens: %.1f MB/s at first, %.1f MB/s with known words\n",
                name, load, static_cast<double>(text.size()) / 1e6, ids.size(),
                static_cast<double>(text.size()) / 1e6 / first,
                static_cast<double>(text.size()) / 1e6 / second);
    EXPECT_EQ(tokenizer.decode(ids, false), text);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (const std::string argument = argv[i]; argument.starts_with("--corpus="))
      temper::corpus_folder() = argument.substr(9);
  return RUN_ALL_TESTS();
}

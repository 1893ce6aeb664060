// What the files beside tokenizer.json say about tokens, and what hostile ones may cost.
#include <gtest/gtest.h>

#include <ctime>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/json.h"
#include "src/data/tokenizer/tokenizer.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

/// The error of loading a folder, as text.
std::string refusal(const TempDir& folder) {
  try {
    Tokenizer::load(folder.path());
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::data) << e.what();
    return e.what();
  }
  return "accepted";
}

Json golden() { return read_json_file("tests/golden/tokenizer/settings.json"); }

/// tokenizer_config.json, special_tokens_map.json and added_tokens.json as transformers reads them.
TEST(TokenSettings, AsTransformers) {
  const Json made = golden();
  ASSERT_GE(made["cases"].size(), 30u);
  for (const Json& entry : made["cases"]) {
    const std::string name = entry["name"];
    TempDir temp;
    Json base = made["base"];
    for (const Json& token : entry["added"]) base["added_tokens"].push_back(token);
    write_file_atomic(temp / "tokenizer.json", base.dump());
    for (const auto& [file, content] : entry["files"].items()) write_file_atomic(temp / file, content.dump());
    if (entry.contains("refused")) {
      const std::string why = refusal(temp);
      EXPECT_NE(why.find(entry["refused"].get<std::string>()), std::string::npos) << name << "\n" << why;
      continue;
    }
    const Tokenizer tokenizer = Tokenizer::load(temp.path());
    const std::vector<int32_t> ids = tokenizer.encode(entry["text"].get<std::string>(), false);
    EXPECT_EQ(ids, entry["ids"].get<std::vector<int32_t>>()) << name;
    EXPECT_EQ(tokenizer.decode(ids, true), entry["plain"].get<std::string>()) << name;
    EXPECT_EQ(tokenizer.special_tokens(), (entry["names"].get<std::map<std::string, std::string>>())) << name;
  }
}

TEST(TokenSettings, RefusesBrokenFiles) {
  const std::pair<const char*, const char*> broken[] = {
      {R"({"added_tokens_decoder": {"x": {"content": "<a>"}}})", "under a token id"},
      {R"({"added_tokens_decoder": {"5": "<a>"}})", "added_tokens_decoder.5"},
      {R"({"added_tokens_decoder": {"5": {"content": ""}}})", "is empty"},
      {R"({"added_tokens_decoder": {"0": {"content": "<end>"}}})",
       "is an added token already and has to be 256"},
      {R"({"added_tokens_decoder": {"1": {"content": "a"}}})", "is in model.vocab and has to be 97"},
      {R"({"extra_special_tokens": [7]})", "extra_special_tokens[0]"},
      {R"({"add_prefix_space": "yes"})", "add_prefix_space"},
      {R"({"split_special_tokens": 1})", "split_special_tokens"},
      {"[]", "not a JSON object"}};
  for (const auto& [config, expected] : broken) {
    TempDir temp;
    write_file_atomic(temp / "tokenizer.json", golden()["base"].dump());
    write_file_atomic(temp / "tokenizer_config.json", config);
    const std::string why = refusal(temp);
    EXPECT_NE(why.find(expected), std::string::npos) << config << "\n" << why;
    EXPECT_NE(why.find("tokenizer_config.json"), std::string::npos) << why;
  }
}

/// What a post-processor adds is counted before it is read; blanks around added tokens are passed once.
TEST(TokenSettings, CostsWhatIsWritten) {
  const std::clock_t begin = std::clock();
  Json file = golden()["base"], pieces = Json::array(), ids = Json::array();
  for (int i = 0; i < 20'000; ++i) {
    pieces.push_back({{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}});
    ids.push_back(0);
  }
  pieces.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  const auto template_refusal = [&](const Json& single, const Json& list) {
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", single},
                              {"special_tokens", {{"x", {{"id", "x"}, {"ids", list}, {"tokens", {"x"}}}}}}};
    TempDir temp;
    write_file_atomic(temp / "tokenizer.json", file.dump());
    return refusal(temp);
  };
  EXPECT_NE(template_refusal(pieces, ids).find("limit is 1024"), std::string::npos);
  EXPECT_NE(template_refusal(pieces, Json::array()).find("limit is 1024"), std::string::npos);
  const Json two = {pieces.front(), pieces.back()};
  EXPECT_NE(template_refusal(two, ids).find("limit is 1024"), std::string::npos);
  for (const char* side : {"lstrip", "rstrip"}) {
    Json blanks = golden()["base"];
    blanks["added_tokens"][0]["content"] = " ";
    blanks["added_tokens"][0][side] = true;
    TempDir temp;
    write_file_atomic(temp / "tokenizer.json", blanks.dump());
    EXPECT_GT(Tokenizer::load(temp.path()).encode(std::string(300'000, ' '), false).size(), 1u);
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20.0);  // it took minutes
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

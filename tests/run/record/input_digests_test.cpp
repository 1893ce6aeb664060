// Digests of a run's inputs: all ranks have read the same, or two of them are named; what is damaged in a
// manifest is refused.

#include "src/run/record/origins/input_digests.h"

#include <gtest/gtest.h>

#include "src/core/digest/hash.h"
#include "src/core/file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

/// Ranks that have told their bytes already.
class Told : public Comm {
 public:
  explicit Told(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {}
  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(bytes_.size()); }
  void barrier(const char*) override {}
  std::string broadcast(const std::string& bytes, int, const char*) override { return bytes; }
  std::vector<std::string> all_gather(const std::string&, const char*) override { return bytes_; }
  void all_reduce_sum(std::vector<double>&, const char*) override {}
  double all_reduce_max(double value, const char*) override { return value; }

 private:
  std::vector<std::string> bytes_;
};

InputDigests inputs(const std::string& key, const std::vector<FileDigest>& files) {
  InputDigests made;
  made.add_list(key, files);
  return made;
}

TEST(InputDigests, RanksPutTogetherWhatTheyHaveRead) {
  const FileDigest data = digest_of_text("data.jsonl", "rows"), model = digest_of_text("m/config.json", "{}");
  Told ranks({inputs("data.train", {data}).text(), InputDigests().text(),
              inputs("model.path", {model}).text(), inputs("data.train", {data}).text()});
  const InputDigests all = agree_on_inputs({}, ranks);
  EXPECT_EQ(all.files().size(), 2u);
  EXPECT_EQ(all.of("data.train").at("0").text(), data.text());
  EXPECT_TRUE(same_content(all, InputDigests::from_text(all.text(), "here"), "model.path"));
}

TEST(InputDigests, RanksThatReadDifferentFilesAreNamed) {
  Told ranks({InputDigests().text(), inputs("data.train", {digest_of_text("a", "rows")}).text(),
              inputs("data.train", {digest_of_text("a", "other rows")}).text()});
  expect_error(Exit::data, {"data.train, ranks 1 and 2", "4 bytes", "10 bytes"}, "two hosts",
               [&] { agree_on_inputs({}, ranks); });
}

TEST(InputDigests, AFileThatIsReadOnceMoreMustBeWhatItWas) {
  const FileDigest held = digest_of_text("a", "rows");
  const InputDigests began = inputs("validation.data", {digest_of_text("b", "others"), held});
  require_unchanged(began, "validation.data", held);
  for (const FileDigest& now : {digest_of_text("a", "rowS"), digest_of_text("c", "rows")})
    expect_error(Exit::data, {"validation.data, " + now.path, now.text(), "put the old content back"},
                 "changed", [&] { require_unchanged(began, "validation.data", now); });
  expect_error(Exit::data, {"none when the run began"}, "other key",
               [&] { require_unchanged(began, kReplay, held); });
}

TEST(InputDigests, OnlyKeysOfBothSidesAreCompared) {
  const InputDigests before = inputs("data.train", {digest_of_text("a", "x"), digest_of_text("b", "y")});
  EXPECT_TRUE(changed_content(before, inputs("model.path", {digest_of_text("c", "z")})).empty());
  EXPECT_TRUE(changed_content({}, before).empty());
  const auto changes = changed_content(before, inputs("data.train", {digest_of_text("c", "x")}));
  ASSERT_EQ(changes.size(), 1u) << "the second file";
  EXPECT_TRUE(changes[0].grave() && changes[0].after == "none") << changes[0].text();
  EXPECT_FALSE(same_content(before, before, "tokenizer.path")) << "nobody has read it";
}

TEST(InputDigests, WhatIsDamagedIsRefused) {
  for (const char* text : {"", "{", "[1]", R"([{"key":"a"}])",
                           R"([{"key":"a","name":"b","path":"c","bytes":"d","digest":"e"}])"})
    expect_error(Exit::data, {"meta.inputs"}, text, [&] { InputDigests::from_text(text, "meta.inputs"); });
}

TEST(InputDigests, AFileHasTheDigestOfItsText) {
  const TempDir dir;
  const std::string text(5 << 20, 'x');
  write_file_atomic(dir / "file", text);
  EXPECT_EQ(digest_of_file(dir / "file").text(), digest_of_text(dir / "file", text).text());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// tools/gsm8k_data.py, where there is a python3: from what is downloaded to the lines that configs name.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/core/file.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

bool runs(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }

constexpr const char* kRow = R"({"question": "1 \u2019+ 1?", "answer": "It is <<1+1=2>>2.\n#### 2"})";

class Gsm8kData : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runs("python3 --version")) GTEST_SKIP() << "there is no python3";
  }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name) << content;
  }
  bool make(const std::string& from) const {
    return runs("python3 tools/gsm8k_data.py '" + (folder_ / from) + "' '" + (folder_ / "out/gsm8k") + "'");
  }
  std::string made(const std::string& split) const {
    return read_file(folder_ / ("out/gsm8k/" + split + ".jsonl"), 1 << 20);
  }
  TempDir folder_;
};

TEST_F(Gsm8kData, OfLines) {
  const std::string extra = R"({"id": 7, "answer": "#### -1,000", "question": "?"})";
  write("a/train.jsonl", std::string(kRow) + "\n\n" + extra + "\n");
  write("a/test.jsonl", std::string(kRow) + "\n");
  write("b/main/train.jsonl", std::string(kRow));
  write("b/main/test.jsonl", std::string(kRow));
  write("b/socratic/train.jsonl", "other");
  ASSERT_TRUE(make("a"));
  EXPECT_EQ(made("train"), std::string(kRow) + "\n{\"question\": \"?\", \"answer\": \"#### -1,000\"}\n");
  EXPECT_EQ(made("test"), std::string(kRow) + "\n");
  ASSERT_TRUE(make("b")) << "again, over what is there";
  EXPECT_EQ(made("train"), std::string(kRow) + "\n");
}

/// Nothing is written from half of a data set or from another one.
TEST_F(Gsm8kData, RefusesWhatIsNotThis) {
  write("test.jsonl", std::string(kRow) + "\n");
  for (const char* train :
       {"", "no JSON", "[1]", "{\"question\": \"?\"}", "{\"question\": 1, \"answer\": \"#### 1\"}",
        "{\"question\": \"?\", \"answer\": \"none\"}"}) {
    write("train.jsonl", train);
    EXPECT_FALSE(make(".")) << train;
    EXPECT_FALSE(path_exists(folder_ / "out")) << train;
  }
  EXPECT_FALSE(make("nowhere"));
}

TEST_F(Gsm8kData, OfParquet) {
  if (!runs("python3 -c 'import pyarrow.parquet'")) GTEST_SKIP() << "there is no pyarrow";
  write("row.json", kRow);
  write("make.py",
        "import json, sys, pyarrow, pyarrow.parquet\n"
        "row = json.load(open(sys.argv[1]))\n"
        "for split in ('train', 'test'):\n"
        "    table = pyarrow.Table.from_pylist([row, row])\n"
        "    pyarrow.parquet.write_table(table, f'{sys.argv[2]}/{split}-00000-of-00001.parquet')\n");
  std::filesystem::create_directories(folder_ / "d/main");
  ASSERT_TRUE(runs("cd '" + folder_.path() + "' && python3 make.py row.json d/main"));
  ASSERT_TRUE(make("d"));
  EXPECT_EQ(made("train"), std::string(kRow) + "\n" + kRow + "\n");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

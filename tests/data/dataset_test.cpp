// JSONL files: what is a line and what is refused, with file and line; the order as a pure function of seed,
// epoch and position; weights over epochs.

#include "src/data/dataset.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

class DatasetTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    remove_tree(dir_ / name);
    OutputFile(dir_ / name, OutputFile::Mode::create_new).write(text);
    return dir_ / name;
  }
  /// A file of `count` lines {"id": "NAME<i>"}.
  std::string numbered(const std::string& name, int64_t count) const {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += fmt::format("{{\"id\":\"{}{}\"}}\n", name, i);
    return write(name, text);
  }
  static std::string id(const Json& record) { return record.at("id").get<std::string>(); }
  static std::vector<std::string> ids(Dataset& data, int64_t first, int64_t count) {
    std::vector<std::string> list;
    for (int64_t i = first; i < first + count; ++i) list.push_back(id(data.record(i)));
    return list;
  }
  static std::map<std::string, int64_t> counts(const std::vector<std::string>& list) {
    std::map<std::string, int64_t> n;
    for (const std::string& one : list) ++n[one];
    return n;
  }
  /// The lines that a file of this text gives.
  std::vector<Json> lines_of(const std::string& text) const {
    const Dataset data({{write("lines", text)}}, 0, false);
    std::vector<Json> list;
    for (int64_t i = 0; i < data.num_lines(); ++i) list.push_back(data.line(i));
    return list;
  }
  void expect_refused(const std::string& text, int line, const std::string& label) const {
    const std::string path = write("broken", text);
    expect_error(Exit::data, {fmt::format("{}:{}", path, line)}, label, [&] { Dataset({{path}}, 0, true); });
  }

  TempDir dir_;
};

TEST_F(DatasetTest, LinesAndTheirEnds) {
  const std::vector<Json> two = {{{"a", 1}}, {{"b", 2}}};
  EXPECT_EQ(lines_of("{\"a\":1}\n{\"b\":2}\n"), two);
  EXPECT_EQ(lines_of("{\"a\":1}\n{\"b\":2}"), two) << "no newline at the end";
  EXPECT_EQ(lines_of("{\"a\":1}\r\n{\"b\":2}\r\n"), two) << "CRLF";
  EXPECT_EQ(lines_of("\xef\xbb\xbf{\"a\":1}\n{\"b\":2}\n"), two) << "byte order mark";
  EXPECT_EQ(lines_of("{\"a\":1}\n\xef\xbb\xbf{\"b\":2}\n"), two) << "files with marks, one after the other";
  EXPECT_EQ(lines_of("\n\n{\"a\":1}\n \t\r\n\r\n{\"b\":2}\n\n"), two) << "empty lines";
  EXPECT_EQ(lines_of("  {\"a\":1}  \n\t{\"b\":2}\t\n"), two) << "blanks around";
  EXPECT_EQ(lines_of("{\"a\":\"\\n\\u2028 \xe2\x80\xa8\"}").size(), 1u) << "other separators are text";
}

TEST_F(DatasetTest, ALineOfManyKeys) {  // with work that grows as their square, beyond the time of a test
  constexpr int kKeys = 600'000;
  std::string line = "{";
  for (int i = 0; i < kKeys; ++i) line += fmt::format("\"{}\":0,", i);
  const std::vector<Json> lines = lines_of(line + "\"last\":1}");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].size(), kKeys + 1u);
  EXPECT_EQ(lines[0].at("last"), 1);
}

TEST_F(DatasetTest, BrokenLinesAreNamed) {
  const std::string good = "{\"a\":1}\n";
  const std::pair<const char*, std::string> broken[] = {
      {"not JSON", "oops"},
      {"cut", "{\"a\":"},
      {"text after the object", "{\"a\":1} x"},
      {"two objects", "{\"a\":1}{\"b\":2}"},
      {"a lone carriage return between objects", "{\"a\":1}\r{\"b\":2}"},
      {"an array", "[1]"},
      {"a number", "5"},
      {"null", "null"},
      {"duplicate key", "{\"a\":1,\"a\":2}"},
      {"not UTF-8", "{\"a\":\"\xff\"}"},
      {"half a character", "{\"a\":\"\xe2\x82\"}"},
      {"a surrogate", "{\"a\":\"\\ud800\"}"},
      {"NaN", "{\"a\":NaN}"},
      {"a number that overflows", "{\"a\":1e999}"},
      {"single quotes", "{'a':1}"},
      {"a zero byte", std::string("{\"a\":1}\0", 8)},
      {"text after a zero byte", std::string("{\"a\":1}\0{", 9)},
      {"deep nesting", "{\"a\":" + std::string(100000, '[')},
      {"a raw tab in a string", "{\"a\":\"\t\"}"}};
  for (const auto& [label, text] : broken) {
    expect_refused(good + text + "\n" + good, 2, label);
    expect_refused(good + "\n\r\n" + good + text, 5, label);
  }
  for (const auto& [label, text] : broken) expect_refused(text, 1, label);
}

TEST_F(DatasetTest, HugeLines) {
  const std::string big(size_t{5} << 20, 'x'), huge(size_t{9} << 20, 'x');
  const std::vector<Json> lines = lines_of("{\"a\":\"" + big + "\"}\n{\"b\":2}\n");  // longer than a window
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["a"].get<std::string>(), big);
  EXPECT_EQ(lines[1]["b"], 2);
  expect_refused("{\"b\":2}\n{\"a\":\"" + huge + "\"}\n", 2, "over the limit");
  expect_refused("{\"b\":2}\n{\"a\":\"" + huge, 2, "over the limit, without an end");
}

TEST_F(DatasetTest, FilesWithoutLinesAndPathsThatAreNone) {
  for (const char* text : {"", "\n", "\r\n \n"}) {
    const std::string path = write("empty", text);
    try {
      Dataset({{path}}, 0, true);
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::data);
      EXPECT_EQ(e.problem().where, path);
    }
  }
  expect_error(Exit::usage, {dir_ / "absent"}, "absent", [&] { Dataset({{dir_ / "absent"}}, 0, true); });
  EXPECT_THROW(Dataset({{dir_.path()}}, 0, true), Error) << "a folder";
  const std::string path = numbered("a", 3);
  expect_error(Exit::usage, {"data.train", "weight"}, "tiny weight", [&] {
    Dataset({{path, 1e-9}}, 0, true);
  });
}

TEST_F(DatasetTest, WhereNamesTheLineInItsFile) {
  const std::string a = write("a", "\n{\"id\":\"first\"}\n\n{\"id\":\"second\"}\n"), b = numbered("b", 1);
  Dataset data({{a}, {b}}, 0, false);
  ASSERT_EQ(data.num_lines(), 3);
  EXPECT_EQ(data.where_line(0), a + ":2");
  EXPECT_EQ(data.where_line(1), a + ":4");
  EXPECT_EQ(data.where_line(2), b + ":1");
  EXPECT_EQ(id(data.line(1)), "second");
  EXPECT_EQ(data.where(4), a + ":4");  // the second line of the second epoch
  EXPECT_EQ(id(data.record(4)), "second");
  EXPECT_THROW(data.line(3), Error);
  ASSERT_EQ(data.digests().size(), 2u);
  EXPECT_EQ(data.digests()[0].text(), digest_of_file(a).text());
  EXPECT_EQ(data.digests()[1].text(), digest_of_file(b).text());
}

TEST_F(DatasetTest, WithoutShuffleTheFilesAreReadInOrder) {
  Dataset data({{numbered("a", 2)}, {numbered("b", 3)}}, 5, false);
  EXPECT_EQ(ids(data, 0, 7), (std::vector<std::string>{"a0", "a1", "b0", "b1", "b2", "a0", "a1"}));
}

TEST_F(DatasetTest, EveryLineOncePerEpochInAnOrderOfItsOwn) {
  for (int64_t lines : {1, 2, 7, 100}) {
    Dataset data({{numbered("a", lines)}}, 3, true);
    std::set<std::vector<std::string>> orders;
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const std::vector<std::string> order = ids(data, epoch * lines, lines);
      EXPECT_EQ(counts(order).size(), static_cast<size_t>(lines)) << "epoch " << epoch;
      orders.insert(order);
    }
    EXPECT_TRUE(lines < 100 || orders.size() == 5) << orders.size();
  }
}

TEST_F(DatasetTest, OrderIsAFunctionOfSeedAndPositionAlone) {
  const std::vector<DatasetFile> files = {
      {numbered("a", 13), 1.0}, {numbered("b", 8), 0.4}, {numbered("c", 3), 2.5}};
  Dataset data(files, 9, true), again(files, 9, true), other(files, 10, true);
  const std::vector<std::string> order = ids(data, 0, 200);
  for (int64_t i = 199; i >= 0; i -= 3) EXPECT_EQ(id(again.record(i)), order[static_cast<size_t>(i)]) << i;
  for (int64_t i : {150, 0, 149, 20, 21, 19, 199})  // jumps between epochs
    EXPECT_EQ(id(again.record(i)), order[static_cast<size_t>(i)]) << i;
  Dataset late(files, 9, true);
  EXPECT_EQ(id(late.record(123)), order[123]) << "a fresh one, as after a resume";
  EXPECT_NE(ids(other, 0, 200), order) << "another seed";
}

TEST_F(DatasetTest, WeightsHoldOverEpochs) {
  const std::vector<DatasetFile> files = {
      {numbered("a", 10), 1.0}, {numbered("b", 7), 0.3}, {numbered("c", 4), 2.5}, {numbered("d", 3), 0.01}};
  for (bool shuffle : {false, true}) {
    Dataset data(files, 1, shuffle);
    // 100 epochs: 1000 of a, 210 of b, 1000 of c, 3 of d. Fractions carry over, so no rounding piles up.
    std::map<char, int64_t> of_file;
    std::map<std::string, int64_t> of_line = counts(ids(data, 0, 2213));
    for (const auto& [line, n] : of_line) of_file[line[0]] += n;
    EXPECT_EQ(of_file, (std::map<char, int64_t>{{'a', 1000}, {'b', 210}, {'c', 1000}, {'d', 3}}));
    for (const auto& [line, n] : of_line)  // whole passes over each file
      EXPECT_EQ(n, line[0] == 'a' ? 100 : line[0] == 'b' ? 30 : line[0] == 'c' ? 250 : 1) << line;
  }
}

TEST_F(DatasetTest, FarPositions) {
  Dataset data({{numbered("a", 3)}}, 1, true);
  const int64_t far = (int64_t{1} << 53) - 5;  // a multiple of 3: an epoch begins
  EXPECT_EQ(counts(ids(data, far, 3)).size(), 3u);
  for (int64_t bad : {int64_t{-1}, INT64_MIN, INT64_MAX}) EXPECT_THROW(data.record(bad), Error);
}

TEST_F(DatasetTest, AFileThatShrinksWhileInUseIsNamed) {
  const std::string path = numbered("a", 5);
  Dataset data({{path}}, 0, false);
  OutputFile(path, OutputFile::Mode::truncate).write("{}\n");
  expect_error(Exit::data, {path}, "truncated", [&] { data.record(4); });
}

TEST_F(DatasetTest, OtherFormatsAreNamed) {
  using namespace std::string_literals;
  for (const auto& [head, words] :
       {std::pair{"PAR1\x15\0"s, std::vector<std::string>{"Parquet", "read_parquet"}},
        {"\x1f\x8b\x08\0"s, {"gzip", "unpack"}},
        {"\x28\xb5\x2f\xfd"s, {"zstd", "unpack"}},
        {"\xff\xfe{\0"s, {"UTF-16", "iconv"}},
        {"\xfe\xff\0{"s, {"UTF-16", "iconv"}}}) {
    const std::string path = write("other", head + "\n{}\n");
    expect_error(Exit::data, words, words[0], [&] { Dataset({{path}}, 0, false); });
    expect_error(Exit::data, words, words[0], [&] { sample_lines(InputFile(path), 10, /*count_bytes=*/1); });
  }
}

TEST_F(DatasetTest, SamplesAreEvenlySpaced) {
  const std::string path = numbered("a", 1000);
  const InputFile file(path);
  const LineSample all = sample_lines(file, 5000), some = sample_lines(file, 10),
                   guessed = sample_lines(file, 100, /*count_bytes=*/1000);
  EXPECT_EQ(all.rows, 1000);
  EXPECT_EQ(all.lines.size(), 1000u);
  EXPECT_EQ(some.rows, 1000);
  ASSERT_EQ(some.lines.size(), 10u);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(some.lines[i].number, static_cast<int64_t>(i) * 100 + 1);
  EXPECT_TRUE(all.counted && some.counted && !guessed.counted);
  EXPECT_NEAR(static_cast<double>(guessed.rows), 1000, 50);
  ASSERT_EQ(guessed.lines.size(), 100u);
  int64_t last = -1;
  for (const Line& line : guessed.lines) {
    EXPECT_GT(line.begin, last);
    last = line.end;
    parse_data_line(read_line(file, line), "a sampled line");
  }
  EXPECT_GT(last, file.size() * 9 / 10);
  EXPECT_EQ(guessed.lines.front().begin, 0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

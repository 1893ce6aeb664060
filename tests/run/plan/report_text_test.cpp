// Numbers and long texts as a plan's report shows them to people.

#include <gtest/gtest.h>

#include "src/core/text/short_number.h"
#include "src/run/plan/report/sizes.h"
#include "src/run/plan/report/text_lines.h"

namespace temper {
namespace {

TEST(CheckText, NumbersForPeople) {
  const std::pair<std::string, const char*> cases[] = {
      {grouped_number(0), "0"},
      {grouped_number(999), "999"},
      {grouped_number(-1000), "-1,000"},
      {grouped_number(393216), "393,216"},
      {grouped_number(1234567890), "1,234,567,890"},
      {count_text(1, "rank"), "1 rank"},
      {count_text(0, "error"), "0 errors"},
      {large_text(986496), "986,496"},
      {large_text(596049920), "596 million"},
      {large_text(8190735360), "8.19 billion"},
      {large_text(405853388800), "406 billion"},
      {size_text(int64_t{1} << 20), "1.00 MiB"},
      {size_text((int64_t{1} << 30) - 1), "1024.0 MiB"},
      {size_text(int64_t{80} << 30), "80.0 GiB"},
      {time_text(0.25), "0.25 s"},
      {time_text(119), "119 s"},
      {time_text(7200), "2.0 h"},
      {time_text(260000), "3.0 days"},
  };
  for (const auto& [text, wanted] : cases) EXPECT_EQ(text, wanted);
}

TEST(CheckText, LongTextsAreShownByTheirEnds) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped("one two three\n\nfour", 8), (Lines{"one two", "three", "", "four"}));
  EXPECT_EQ(wrapped("äöüäöü", 4), (Lines{"äöüä", "öü"})) << "characters, not bytes";
  EXPECT_TRUE(wrapped("\n", 4).empty());
  EXPECT_EQ(excerpt("a\n\nb\n", 9, 2, 1), (Lines{"a", "", "b"}));
  EXPECT_EQ(excerpt("a\n\nb\n \nc", 9, 2, 1), (Lines{"a", "b", "c"})) << "blank lines go first";
  EXPECT_EQ(excerpt("aaaaaaaaa\nb\nc\nd\ne", 9, 1, 2), (Lines{"aaaaa ...", "d", "e"}));
  EXPECT_EQ(cut_middle("0123456789", 2, 3), "0123456789");
  EXPECT_EQ(cut_middle("0123456789ä", 2, 3), "01 ... 89ä");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

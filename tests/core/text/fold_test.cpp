#include "src/core/text/fold.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

TEST(Folded, ShortLinesStayAsTheyAre) {
  for (const char* text : {"", "\n", "one line", "two  words\n\n  and a tail\n"})
    EXPECT_EQ(folded(text, 40), text);
}

TEST(Folded, GoesOnBelowTheSecondColumn) {
  EXPECT_EQ(folded("  --out FILE    the page that is written\n  --csv FILE    a table\n", 34),
            "  --out FILE    the page that is\n"
            "                written\n"
            "  --csv FILE    a table\n");
}

TEST(Folded, WithoutASecondColumnInTheLeftHalfAsFarInAsItBegan) {
  EXPECT_EQ(folded("  one two three", 11), "  one two\n  three");
  EXPECT_EQ(folded("a long sentence, then  a gap and more", 20),
            "a long sentence,\n  then  a gap and\n  more");
}

TEST(Folded, LongWordsStayWhole) {
  EXPECT_EQ(folded("0123456789abcdef", 10), "0123456789abcdef");
  EXPECT_EQ(folded("see 0123456789abcdef there", 10), "see\n  0123456789abcdef\n  there");
  EXPECT_EQ(folded("--option=of-many-words  help for it", 12), "--option=of-many-words\n   help for\n  it");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

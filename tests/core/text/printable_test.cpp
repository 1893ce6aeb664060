// Text from outside does nothing to a terminal, and its bytes can be told.

#include "src/core/text/printable.h"

#include <gtest/gtest.h>

#include "src/core/check.h"

namespace temper {
namespace {

using namespace std::string_view_literals;

TEST(Printable, TextStays) {
  for (const std::string_view text :
       {"", "plain \\x1b", "two\n\tlines", "ümlaut 日本語 👩‍👩‍👧 \u00a0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAreNamed) {
  EXPECT_EQ(printable("\x1b[31mred\x07\r\x7f"), "\\x1b[31mred\\x07\\x0d\\x7f");
  EXPECT_EQ(printable("a\0b"sv), "a\\x00b");
  EXPECT_EQ(printable("\u009b1m \u2028 \u202e"), "\\u009b1m \\u2028 \\u202e");
}

TEST(Printable, BytesThatAreNoTextAreNamed) {
  EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "overlong";
}

TEST(Printable, ErrorsAre) {
  const Error error(Exit::data,
                    {.what = "w", .where = std::string("a\0b"sv), .why = "\x1b[2J", .fix = "\xfe"});
  EXPECT_EQ(std::string(error.what()), "w\n  where: a\\x00b\n  why:   \\x1b[2J\n  fix:   \\xfe");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

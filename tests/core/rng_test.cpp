// Golden numbers of the sampling definition: Philox words, keying, and the fp32 logarithm and exponential
// variate.

#include "src/core/rng.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace temper {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, ~uint64_t{0}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SampleKey, Words) {
  const SampleKey first{42, 0, 1};
  EXPECT_EQ(first.words(0, 0), (PhiloxBlock{0x02933769, 0x2051e913, 0x3b68b038, 0xb62c409c}));
  EXPECT_EQ(first.words(1, 0), (PhiloxBlock{0x20ff9139, 0xfdd21d94, 0x1b0af4ec, 0x39c6bd08}));
  const uint64_t seed = 0x0123456789abcdef;
  const SampleKey far{seed, (int64_t{3} << 20) | 7, 2};
  EXPECT_EQ(far.words(2, 5), (PhiloxBlock{0x1ce6447f, 0xb9d33100, 0x6b76b07b, 0x3b982073}));
  EXPECT_EQ(philox({2, 5, (7 << 12) | 2, (2u << 24) | 3}, seed),
            (PhiloxBlock{0x09bdc34c, 0x6ea3acd1, 0xa46ef10f, 0xa517daa3}));
  const SampleKey most{seed, SampleKey::kMaxPosition - 1, SampleKey::kMaxSample - 1};
  EXPECT_EQ(most.words(151936 / 4, 0xffffffff),
            (PhiloxBlock{0xa462a723, 0x12c13cff, 0xfc32f246, 0x2f75317c}));
}

TEST(StreamWords, KeepTheLastCounterWord) {
  EXPECT_EQ(stream_words(7, RngStream::data_order, 1, 2, 3), philox({1, 2, 3, 1u << 24}, 7));
  EXPECT_EQ(stream_words(7, RngStream::weight_init, 1, 2, 3), philox({1, 2, 3, 6u << 24}, 7));
  EXPECT_EQ(moment_words(7, 3, (uint64_t{2} << 32) + 1), philox({1, 2, 3, 7u << 24}, 7));
}

TEST(Uniform, IsBelowOne) {
  EXPECT_EQ(uniform_of(0), 0.0);
  EXPECT_LT(uniform_of(0xffffffff), 1.0);
  EXPECT_EQ(uniform_of(0x80000000), 0.5);
}

struct Word {
  uint32_t word, exponential, log_exponential;
};

TEST(Exponential, Bits) {
  for (const Word& w : {Word{0x02933769, 0x40932d7d, 0x3fc350d8}, Word{0x2051e913, 0x40047290, 0x3f3a308d},
                        Word{0x3b68b038, 0x3fbaf94a, 0x3ec2042f}, Word{0xb62c409c, 0x3eae3181, 0xbf8a011a},
                        Word{0x4afb0ccb, 0x3f9d2d5f, 0x3e5245a3}, Word{0x00000000, 0x41b6fda9, 0x404851d5},
                        Word{0x7fffffff, 0x3f317218, 0xbebba795}, Word{0x80000000, 0x3f317218, 0xbebba795},
                        Word{0xffffffff, 0x2f000000, 0xc1b6fda9}, Word{0xb504f333, 0x3eb17218, 0xbf87a2f1}}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(exponential_of(w.word)), w.exponential) << w.word;
    EXPECT_EQ(std::bit_cast<uint32_t>(plog(exponential_of(w.word))), w.log_exponential) << w.word;
  }
}

TEST(Exponential, ChecksumOverAllWords) {
  uint64_t h = 1469598103934665603u;
  for (uint64_t x = 0; x < uint64_t{1} << 32; x += 4099) {
    const float e = exponential_of(static_cast<uint32_t>(x));
    for (const float value : {e, plog(e)}) h = (h ^ std::bit_cast<uint32_t>(value)) * 1099511628211u;
  }
  EXPECT_EQ(h, 0x79028bd3fec705a6u);
}

TEST(Exponential, IsTheLogarithmOfTheWord) {
  for (uint64_t x = 1; x < uint64_t{1} << 32; x += 65521 * 3) {
    const double u = (static_cast<double>(x) + 0.5) * 0x1p-32, want = -std::log(u);
    ASSERT_NEAR(exponential_of(static_cast<uint32_t>(x)), want, 2.4e-7 * want) << x;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

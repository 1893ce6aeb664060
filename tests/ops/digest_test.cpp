#include "src/ops/digest.h"

#include <cstring>
#include <set>

#include "kernels/digest.h"
#include "tests/support/check_op.h"

namespace temper {
namespace {

/// The sum follows the definition, byte by byte.
uint64_t definition(const std::vector<uint8_t>& bytes, uint64_t first) {
  uint64_t sum = 0;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    for (size_t b = 0; b < 8 && at + b < bytes.size(); ++b) word |= uint64_t{bytes[at + b]} << (8 * b);
    sum += digest_of_word(word, first + at / 8);
  }
  return sum;
}

std::vector<uint8_t> random_bytes(int64_t count, uint64_t seed) {
  std::vector<uint8_t> bytes;
  for (const double x : normal_values(count, seed)) bytes.push_back(static_cast<uint8_t>(x * 1e6));
  return bytes;
}

/// The bytes lie from byte `offset` of an allocation on; an even number, as in any tensor.
uint64_t digest(Ctx& c, const std::vector<uint8_t>& bytes, int64_t offset, int64_t first,
                uint64_t before = 0) {
  const ArenaScope scope(c.scratch);
  const Tensor sum = c.scratch.make({2}, DType::i32);
  const auto size = static_cast<int64_t>(bytes.size());
  char* const memory = static_cast<char*>(c.scratch.allocate(size + offset)) + offset;
  device::upload(c.device, memory, bytes.data(), size);
  device::upload(c.device, sum.raw(), &before, sizeof before);
  add_digest(c, sum, make_tensor(memory, DType::u16, {size / 2}), first);
  uint64_t result = 0;
  device::copy_from_device(c.lane, &result, sum.data, sizeof result);
  return result;
}

TEST(Digest, IsWhatItsDefinitionSays) {
  TestCtx one(1), three(3);
  for (const int64_t size : {0, 2, 6, 8, 14, 16, 18, 30, 32, 4096, 70002, 1500002}) {
    const std::vector<uint8_t> bytes = random_bytes(size, 5);
    for (const int64_t offset : {0, 2, 8, 16})
      for (const int64_t first : {int64_t{0}, int64_t{1} << 40}) {
        const uint64_t want = 9 + definition(bytes, static_cast<uint64_t>(first));
        for (TestCtx* c : {&one, &three})
          EXPECT_EQ(digest(*c, bytes, offset, first, 9), want)
              << size << " bytes, offset " << offset << ", first word " << first;
      }
  }
}

TEST(Digest, PiecesAddUpToTheWhole) {
  TestCtx c;
  const std::vector<uint8_t> whole = random_bytes(10000, 6);
  uint64_t sum = 0;
  int64_t words = 0;
  for (size_t at = 0; at < whole.size(); at += 1000) {
    const std::vector<uint8_t> piece(whole.begin() + static_cast<int64_t>(at),
                                     whole.begin() + static_cast<int64_t>(at + 1000));
    sum = digest(c, piece, 0, words, sum);
    words += digest_words(1000);
  }
  EXPECT_EQ(sum, definition(whole, 0));
  EXPECT_EQ(digest_words(0), 0);
  EXPECT_EQ(digest_words(9), 2);
}

/// One bit anywhere, neighbours that change places, zeros that are more.
TEST(Digest, ChangesAreSeen) {
  TestCtx c;
  const std::vector<uint8_t> bytes = random_bytes(512, 7);
  std::set<uint64_t> seen = {digest(c, bytes, 0, 0)};
  const auto expect_new = [&](const std::vector<uint8_t>& changed, const std::string& what) {
    EXPECT_TRUE(seen.insert(digest(c, changed, 0, 0)).second) << what;
  };
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += 7) {
    std::vector<uint8_t> changed = bytes;
    changed[bit / 8] = static_cast<uint8_t>(changed[bit / 8] ^ (1u << bit % 8));
    expect_new(changed, fmt::format("bit {}", bit));
  }
  for (size_t word = 0; word + 16 <= bytes.size(); word += 8) {
    std::vector<uint8_t> changed = bytes;
    std::swap_ranges(changed.begin() + static_cast<int64_t>(word),
                     changed.begin() + static_cast<int64_t>(word + 8),
                     changed.begin() + static_cast<int64_t>(word + 8));
    expect_new(changed, fmt::format("words at {}", word));
  }
  for (const size_t size : {8, 16, 24}) expect_new(std::vector<uint8_t>(size), fmt::format("{} zeros", size));
}

TEST(Digest, OfAnotherPlaceOrTypeIsRefused) {
  TestCtx c;
  TestTensor x(c, DType::f32, {4}), one(c, DType::i32, {1}), floats(c, DType::f32, {2}),
      sum(c, DType::i32, {2});
  EXPECT_THROW(add_digest(c, one, x, 0), Error);
  EXPECT_THROW(add_digest(c, floats, x, 0), Error);
  EXPECT_THROW(add_digest(c, sum, x, -1), Error);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::op_test_main(argc, argv); }

#include "kernels/digest.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/cpu.h"

namespace temper::cpu {

/// Ranges are summed apart, then in order.
void add_digest(Ctx& ctx, Tensor sum, CTensor x, int64_t first) {
  constexpr int64_t kGrain = int64_t{1} << 16;  // words
  const int64_t bytes = x.bytes(), words = (bytes + kDigestWord - 1) / kDigestWord;
  const char* const data = static_cast<const char*>(x.data);
  std::vector<uint64_t> sums(static_cast<size_t>((words + kGrain - 1) / kGrain));
  parallel_ranges(ctx.threads, words, kGrain, [&](int64_t begin, int64_t end) {
    uint64_t range = 0;
    for (int64_t i = begin; i < end; ++i) {
      uint64_t word = 0;
      const int64_t at = i * kDigestWord;
      std::memcpy(&word, data + at,
                  static_cast<size_t>(at + kDigestWord <= bytes ? kDigestWord : bytes - at));
      range += digest_of_word(word, static_cast<uint64_t>(first + i));
    }
    sums[static_cast<size_t>(begin / kGrain)] = range;
  });
  if (ctx.threads.count_only) return;
  uint64_t all = 0;
  std::memcpy(&all, sum.raw(), sizeof all);
  for (const uint64_t range : sums) all += range;
  std::memcpy(sum.raw(), &all, sizeof all);
}

}  // namespace temper::cpu

#pragma once
// Numbers for a key that are legal, as an error proposes them.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/core/json.h"

namespace temper {

/// The legal numbers from 1 to `most`.
template <class IsLegal>
std::vector<int64_t> numbers_that(int64_t most, const IsLegal& is_legal) {
  std::vector<int64_t> numbers;
  for (int64_t n = 1; n <= most; ++n)
    if (is_legal(n)) numbers.push_back(n);
  return numbers;
}

/// Leaves those that `fits` takes. None of them: another key is illegal with each, and said to be.
template <class Fits>
void keep_fitting(std::vector<int64_t>& numbers, const Fits& fits) {
  if (std::any_of(numbers.begin(), numbers.end(), fits))
    std::erase_if(numbers, [&](int64_t n) { return !fits(n); });
}

inline std::vector<Json> as_legal(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

}  // namespace temper

#pragma once
// Many cases of a fault, each drawn from a seed, several at a time. `make test` runs a few of them; under
// CHAOS=1 (`make chaos`) there are as many as the program is held to. CHAOS_SEED draws others, CHAOS_COUNT
// says how many, CHAOS_JOBS how many at a time, CHAOS_CASE runs one alone: what a failure prints.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/core/check.h"

namespace temper {

/// The same for a seed on every machine.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t number) : bits_(seed * 0x9E3779B97F4A7C15 + number) { bits_.discard(8); }

  int64_t below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  /// A number in [0, 1).
  double part() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  template <class List>
  const auto& from(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }

 private:
  std::mt19937_64 bits_;
};

inline int64_t chaos_number(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::atoll(text) : otherwise;
}
inline bool chaos_in_full() { return chaos_number("CHAOS", 0) != 0; }
inline int64_t chaos_count(int64_t few, int64_t all) {
  return chaos_number("CHAOS_COUNT", chaos_in_full() ? all : few);
}

/// One case: empty, or what went wrong.
using ChaosCase = std::function<std::string(int64_t number, Draw& draw)>;

/// Runs the cases 0 to count - 1. A case that goes wrong, or throws, fails the test and says how to repeat
/// it.
inline void run_cases(int64_t count, const ChaosCase& one) {
  const int64_t seed = chaos_number("CHAOS_SEED", 1), only = chaos_number("CHAOS_CASE", -1);
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").lexically_proximate("").string();
  std::atomic<int64_t> next = only >= 0 ? only : 0;
  const int64_t end = only >= 0 ? only + 1 : count;
  const auto work = [&] {
    for (int64_t number = next++; number < end; number = next++) {
      Draw draw(static_cast<uint64_t>(seed), static_cast<uint64_t>(number));
      std::string wrong;
      try {
        wrong = one(number, draw);
      } catch (const std::exception& e) {
        wrong = e.what();
      }
      if (!wrong.empty())
        ADD_FAILURE() << "case " << number << ": " << wrong << "\nrepeat it: CHAOS_SEED=" << seed
                      << " CHAOS_CASE=" << number << " " << program << " --gtest_filter='*." << test << "'";
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < std::min(chaos_number("CHAOS_JOBS", 1), end - next); ++i)
    threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  std::printf("%s: seed %lld, %lld cases\n", test.c_str(), static_cast<long long>(seed),
              static_cast<long long>(end - (only >= 0 ? only : 0)));
}

}  // namespace temper

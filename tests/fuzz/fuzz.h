#pragma once
// What all fuzz targets share. A target is one file: `temper::fuzz` gives an input to a parser and looks at
// what comes back. Only errors of the program's own type may leave a parser, and what a parser took must be
// usable. FUZZ_SECONDS ends the run after so much CPU time; an input that takes more than FUZZ_INPUT_SECONDS
// of it is a finding, so that a busy machine makes none.

#include <signal.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/check.h"
#include "tests/support/temp_dir.h"

namespace temper {

void fuzz(std::string_view input);

/// Ends the process with the stack and the input, as libFuzzer does with a crash.
inline void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "not as it has to be: %s\n", what.c_str());
  std::abort();
}

/// Runs a parser: true if it took the input, false if it threw Error with a code that blames the input.
template <class Parse>
bool takes(Parse&& parse) {
  try {
    parse();
    return true;
  } catch (const Error& e) {
    require(e.code() == Exit::data || e.code() == Exit::usage, e.what());
    require(std::string_view(e.what()).size() < 16384, "an error message that nobody can read");
    return false;
  }
}

/// A folder of this process whose files hold the input under test.
inline const std::string& input_folder() {
  static const TempDir folder;
  return folder.path();
}

/// Path of a file in that folder with this content.
inline std::string input_file(const std::string& name, std::string_view content) {
  const std::string path = input_folder() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(content.data(), std::ssize(content));
  return path;
}

/// The parts of an input that is several texts: lines "=====" divide them. Always `count` of them, perhaps
/// empty.
inline std::vector<std::string_view> parts_of(std::string_view input, size_t count) {
  constexpr std::string_view kLine = "\n=====\n";
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const size_t end = std::min(input.find(kLine), input.size());
    parts.push_back(input.substr(0, end));
    input.remove_prefix(std::min(end + kLine.size(), input.size()));
  }
  parts.push_back(input);
  return parts;
}

inline double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double seconds_of(const char* variable, double otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtod(text, nullptr);
}

}  // namespace temper

/// libFuzzer ends in good order at SIGUSR1, which the timer sends.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  timer_t timer{};
  itimerspec limit{};
  limit.it_value.tv_sec = static_cast<time_t>(temper::seconds_of("FUZZ_SECONDS", 0));
  ::timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer);
  ::timer_settime(timer, 0, &limit, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const double limit = temper::seconds_of("FUZZ_INPUT_SECONDS", 5);
  const double start = temper::cpu_seconds();
  temper::fuzz({reinterpret_cast<const char*>(data), size});
  const double taken = temper::cpu_seconds() - start;
  temper::require(taken <= limit,
                  fmt::format("{} bytes take {:.1f} s of CPU, the limit is {} s", size, taken, limit));
  return 0;
}

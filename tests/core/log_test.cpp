#include "src/core/log.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>

namespace temper {
namespace {

TEST(Log, LinesHaveTheirLevelAndWhatTheyQuoteIsNoFormat) {
  std::ostringstream out;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(out)));
  spdlog::set_level(spdlog::level::debug);
  spdlog::set_pattern("%l %v");
  log::debug("GPU {} of {}", 1, 2);
  log::info("no arguments");
  log::warn("a line: {}", "{} {0:>9} {{");
  log::error("{:.2f} s", 1.5);
  spdlog::set_default_logger(before);
  EXPECT_EQ(out.str(), "debug GPU 1 of 2\ninfo no arguments\nwarning a line: {} {0:>9} {{\nerror 1.50 s\n");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

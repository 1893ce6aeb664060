#pragma once
// A harness over programs of the shell in tests: sessions with a limit of time, and a look at what is left.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "src/agents/programs/harness.h"
#include "src/core/stopwatch.h"
#include "tests/support/temp_dir.h"

namespace temper {

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return (std::stringstream() << file.rdbuf()).str();
}

inline HarnessConfig shell_program(const std::string& script, const std::string& kind = "episode") {
  HarnessConfig config;
  config.argv = {"sh", "-c", script};
  config.kind = kind;
  config.limit_seconds = 20;
  return config;
}

/// Folders of programs are made in `folder`, and their environment has a mark by which they are found.
class ProgramPlace {
 public:
  ProgramPlace() : mark_("mark-" + std::to_string(::getpid()) + "-" + std::string(folder_ / "x")) {
    ::setenv("TMPDIR", std::string(folder_ / "").c_str(), 1);
  }
  ~ProgramPlace() { ::unsetenv("TMPDIR"); }
  HarnessConfig marked(HarnessConfig config) const {
    config.env["HARNESS_TEST"] = mark_;
    return config;
  }
  std::string path() const { return folder_ / ""; }
  int64_t folders() const {
    int64_t found = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path()))
      found += entry.path().filename().string().starts_with("temper-program-");
    return found;
  }
  int64_t processes() const {
    int64_t found = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error))
      found += file_text(entry.path() / "environ").find("HARNESS_TEST=" + mark_) != std::string::npos;
    return found;
  }
  /// Programs have a second after SIGTERM.
  void expect_nothing_left() const {
    for (const Stopwatch watch; watch.seconds() < 10 && (folders() > 0 || processes() > 0);) ::usleep(10000);
    EXPECT_EQ(folders(), 0);
    EXPECT_EQ(processes(), 0);
  }

 private:
  TempDir folder_;
  std::string mark_;
};

inline HarnessStart start_of(uint64_t session, std::string key = "key") {
  HarnessStart start;
  start.id = "s" + std::to_string(session);
  start.record = {{"question", "1+1"}};
  start.seed = 1000 + session;
  start.base_url = "http://127.0.0.1:1/v1";
  start.anthropic_base_url = "http://127.0.0.1:1";
  start.api_key = std::move(key);
  start.reward_key = "reward key";
  return start;
}

/// Plays until `count` sessions have ended, and answers each turn. By session.
template <class Answer>
std::map<uint64_t, HarnessEnd> play(Harness& harness, size_t count, const Answer& answer) {
  std::map<uint64_t, HarnessEnd> ends;
  for (const Stopwatch watch; ends.size() < count && watch.seconds() < 60;) {
    harness.wait(0.5);
    for (HarnessTurn& turn : harness.take_turns()) answer(turn);
    for (HarnessEnd& end : harness.take_ended()) {
      EXPECT_FALSE(ends.contains(end.session)) << end.session << " has ended twice";
      ends[end.session] = std::move(end);
    }
  }
  EXPECT_EQ(ends.size(), count);
  return ends;
}

inline std::map<uint64_t, HarnessEnd> play(Harness& harness, size_t count) {
  return play(harness, count, [](const HarnessTurn& turn) { ADD_FAILURE() << turn.messages; });
}

}  // namespace temper

// The run folder: one owner at a time, named to the second; what is left of a run when it goes on from a
// step.

#include "src/run/record/run_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <sstream>

#include "src/core/file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

class RunFolderTest : public ::testing::Test {
 protected:
  std::unique_ptr<RunFolder> open() const { return std::make_unique<RunFolder>(dir_.path(), "run"); }
  std::string path(const std::string& name) const { return dir_ / ("run/" + name); }
  void write(const std::string& name, const std::string& text) const {
    make_directories(path(name).substr(0, path(name).rfind('/')));
    write_file_atomic(path(name), text);
  }
  std::string read(const std::string& name) const { return read_file(path(name), 1 << 20); }
  static std::string metrics(int64_t first, int64_t last) {
    std::string text;
    for (int64_t step = first; step <= last; ++step) text += fmt::format("{{\"step\":{},\"x\":0.5}}\n", step);
    return text;
  }

  TempDir dir_;
  std::ostringstream said_;
};

TEST_F(RunFolderTest, HasOneOwner) {
  auto first = open();
  expect_error(Exit::busy,
               {path("").substr(0, path("").size() - 1), fmt::format("pid {}", ::getpid()), "host "},
               "second owner", [&] { open(); });
  RunFolder other(dir_.path(), "another");
  first.reset();
  EXPECT_NO_THROW(open()) << "given back";
}

TEST_F(RunFolderTest, FilesInThePlaceOfFoldersAreSetAside) {
  write("metrics.jsonl", metrics(1, 2));
  for (const char* name : {"rollouts", "trace", "tensorboard"}) write(name, "x");
  open()->truncate_to(2, 2);
  for (const char* name : {"rollouts", "trace", "tensorboard"}) {
    EXPECT_FALSE(path_exists(path(name))) << name;
    EXPECT_EQ(read(std::string("set-aside-1/") + name), "x");
  }
}

TEST_F(RunFolderTest, ADeadOwnerLeavesItFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto folder = open();
    [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_error(Exit::busy, {fmt::format("pid {}", child)}, "owned by another process", [&] { open(); });
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(open());
}

TEST_F(RunFolderTest, AFolderThatCannotBeMade) {
  write_file_atomic(dir_ / "run", "a file in its place");
  expect_error(Exit::busy, {dir_ / "run", "run.dir"}, "a file", [&] { open(); });
}

TEST_F(RunFolderTest, KnowsARunByItsMetricsOrCheckpoints) {
  const auto folder = open();
  EXPECT_FALSE(folder->has_run());
  make_directories(path("checkpoints"));
  write("logs/rank-0000.log", "x");
  EXPECT_FALSE(folder->has_run());
  write("checkpoints/step-000001/manifest.json", "{}");
  EXPECT_TRUE(folder->has_run());
  remove_tree(path("checkpoints"));
  write("metrics.jsonl", "");
  EXPECT_TRUE(folder->has_run());
}

TEST_F(RunFolderTest, TruncationKeepsWhatCameUpToTheStep) {
  const auto folder = open();
  write("metrics.jsonl", metrics(1, 12));
  const char* later[] = {"rollouts/step-000008.jsonl",
                         "rollouts/step-000012.jsonl",
                         "validation/step-000010.jsonl",
                         "export/step-000008/config.json",
                         "trace/step-000008.json",
                         "checkpoints/step-000008/manifest.json",
                         "checkpoints/step-000009.tmp/rank-0000.h5"};
  const char* kept[] = {"rollouts/step-000001.jsonl",
                        "rollouts/step-000007.jsonl",
                        "validation/step-000005.jsonl",
                        "export/step-000007/config.json",
                        "trace/step-000003.json",
                        "checkpoints/step-000007/manifest.json",
                        "logs/rank-0000.log",
                        "config.toml",
                        "export/notes.txt",
                        "export/my-step-000009/x"};
  for (const char* name : later) write(name, "x");
  for (const char* name : kept) write(name, "x");
  folder->truncate_to(7, 7);
  EXPECT_EQ(read("metrics.jsonl"), metrics(1, 7));
  for (const char* name : later) EXPECT_FALSE(path_exists(path(name))) << name;
  for (const char* name : kept) EXPECT_TRUE(path_exists(path(name))) << name;
  folder->truncate_to(0, 0);
  EXPECT_EQ(read("metrics.jsonl"), "");
  EXPECT_FALSE(path_exists(path("checkpoints/step-000007")));
  EXPECT_TRUE(path_exists(path("config.toml")));
}

TEST_F(RunFolderTest, AMetricsLineThatACrashCutIsRemoved) {
  const auto folder = open();
  write("metrics.jsonl", metrics(1, 3) + "{\"step\":4,\"x\"");
  folder->truncate_to(9, 9);
  EXPECT_EQ(read("metrics.jsonl"), metrics(1, 3));
  write("metrics.jsonl", "{\"step\":1");
  folder->truncate_to(9, 9);
  EXPECT_EQ(read("metrics.jsonl"), "");
}

TEST_F(RunFolderTest, DamagedMetricsAreRepairedAndKept) {
  const auto folder = open();
  int number = 0;
  for (const char* line :
       {"oops", "[1]", "5", "{\"step\":\"2\"}", "{\"x\":1}", "{\"step\":1.5}", "{\"step\":1}"}) {
    const std::string damaged = metrics(1, 1) + line + "\n" + metrics(3, 4);
    write("metrics.jsonl", damaged);
    folder->truncate_to(3, 3);
    EXPECT_EQ(read("metrics.jsonl"), metrics(1, 1) + metrics(3, 3)) << line;
    EXPECT_EQ(read(fmt::format("set-aside-{}/metrics.jsonl", ++number)), damaged) << "as it was";
  }
}

TEST_F(RunFolderTest, EventsAreAddedAndStay) {
  const auto folder = open();
  folder->events().write("start", {{"ranks", 2}, {"dtype", "fp32"}});
  const std::string first = read("events.jsonl");
  const Json start = parse_json(first, "events.jsonl");
  EXPECT_EQ(start.at("event"), "start");
  EXPECT_EQ(start.at("ranks"), 2);
  const std::string time = start.at("time");  // 2026-01-02T03:04:05+01:00
  ASSERT_EQ(time.size(), 25u);
  EXPECT_TRUE(time[10] == 'T' && time[22] == ':') << time;
  write("events.jsonl", first + "{\"time\":\"20");  // what a crash cuts
  folder->events().write("end", {{"step", 3}});
  const std::string all = read("events.jsonl"), before = first + "{\"time\":\"20\n";
  ASSERT_TRUE(all.starts_with(before)) << all;
  EXPECT_EQ(parse_json(all.substr(before.size()), "events.jsonl").at("step"), 3);
  write("metrics.jsonl", metrics(1, 3));
  folder->truncate_to(1, 1);
  folder->set_aside();
  folder->clear();
  EXPECT_EQ(read("events.jsonl"), all);
  remove_tree(path(""));
  expect_error(Exit::storage, {"vanished"}, "a folder that is gone", [&] { folder->events(); });
}

TEST_F(RunFolderTest, WhatCannotBeAFileOfARunIsSetAside) {
  const char* files[] = {"rollouts", "tensorboard", "validation"};  // in the place of folders
  const char* pipes[] = {"metrics.jsonl", "logs/rank-0000.log"};
  const char* folders[] = {"config.toml", "events.jsonl"};
  make_directories(path("logs"));
  for (const char* name : files) write(name, "mine");
  for (const char* name : pipes) ASSERT_EQ(::mkfifo(path(name).c_str(), 0644), 0);
  for (const char* name : folders) make_directories(path(name));
  write("config-1.toml", "");
  std::filesystem::resize_file(path("config-1.toml"), int64_t{17} << 20);
  const auto folder = open();
  for (const auto& names : {std::vector<const char*>(std::begin(files), std::end(files)),
                            {std::begin(pipes), std::end(pipes)},
                            {std::begin(folders), std::end(folders)},
                            {"config-1.toml"}})
    for (const char* name : names) {
      EXPECT_FALSE(path_exists(path(name))) << name;
      EXPECT_TRUE(path_exists(path(std::string("set-aside-1/") + name))) << name;
    }
  EXPECT_FALSE(folder->has_run());
  folder->keep_config("a = 1");
  folder->truncate_to(1, 1);
  folder->events().write("start", Json::object());
  EXPECT_EQ(read("config.toml"), "a = 1");
}

/// A checkpoint may say any number.
TEST_F(RunFolderTest, MissingStepsAreNotCountedOneByOne) {
  const auto folder = open();
  write("metrics.jsonl", metrics(2, 3) + metrics(5, 5));
  write("rollouts/step-000002.jsonl", "");
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(said_);
  spdlog::default_logger()->sinks().push_back(sink);
  folder->tell_what_is_missing(1, 1'000'000'000'000'000, true);
  spdlog::default_logger()->sinks().pop_back();
  for (const char* text : {"steps 1 to 1, 4 to 4, 6 to 1000000000000000 are missing", "step-000001.jsonl is",
                           "step-000021.jsonl is", "999999999999979 more files"})
    EXPECT_NE(said_.str().find(text), std::string::npos) << text << " in " << said_.str();
}

TEST_F(RunFolderTest, LinksToFilesAreRefused) {
  write_file_atomic(dir_ / "precious", "content");
  for (const char* name :
       {"owner.lock", "metrics.jsonl", "events.jsonl", "config.toml", "logs/rank-0000.log"}) {
    make_directories(path("logs"));
    std::filesystem::create_symlink(dir_ / "precious", path(name));
    expect_error(Exit::busy, {path(name), "symbolic link"}, name, [&] { open(); });
    std::filesystem::remove(path(name));
  }
  std::filesystem::create_symlink(dir_ / "precious", path("x.jsonl"));
  expect_error(Exit::storage, {path("x.jsonl")}, "a file to write",
               [&] { OutputFile(path("x.jsonl"), OutputFile::Mode::truncate); });
  EXPECT_EQ(read_file(dir_ / "precious", 100), "content");
}

TEST_F(RunFolderTest, WhatKilledOwnersLeftIsRemoved) {
  const char* leftovers[] = {"metrics.jsonl.tmp.77",
                             "rollouts/step-000001.jsonl.tmp.5",
                             "checkpoints/step-000009.tmp/rank-0000.h5",
                             "export/step-000002.tmp.5-0/x",
                             "tensorboard/events.tmp.1",
                             "set-aside-2/config.toml.tmp.8"};
  const char* kept[] = {"rollouts/step-000001.jsonl",
                        "export/a.tmpl/x",
                        "notes.tmp2",
                        "notes.tmp",
                        "export/mine.tmp/x",
                        "step-mine.tmp",
                        "a.tmp.old",
                        "a.tmp.5-",
                        "a.tmp.5-x"};
  for (const char* name : leftovers) write(name, "x");
  for (const char* name : kept) write(name, "x");
  const auto folder = open();
  for (const char* name : leftovers) EXPECT_FALSE(path_exists(path(name))) << name;
  for (const char* name : kept) EXPECT_TRUE(path_exists(path(name))) << name;
  write("checkpoints/step-000008/rank-0000.h5", "a removal was cut short");
  write("nonfinite/step-000008.jsonl", "x");
  folder->truncate_to(7, 7);
  EXPECT_TRUE(list_directory(path("checkpoints")).empty());
  EXPECT_TRUE(list_directory(path("nonfinite")).empty());
  EXPECT_FALSE(path_exists(path("set-aside-1")));
}

TEST_F(RunFolderTest, ACheckpointThatWasBeingReplacedIsThereAgain) {
  write("checkpoints/step-000004.replaced/manifest.json", "x");
  write("checkpoints/step-000004.tmp/manifest.json", "y");
  open();
  EXPECT_EQ(list_directory(path("checkpoints")), std::vector<std::string>{"step-000004"});
  EXPECT_EQ(read("checkpoints/step-000004/manifest.json"), "x");
}

TEST_F(RunFolderTest, AWriteThatFailsLeavesNothing) {
  make_directories(dir_ / "x/full");
  expect_error(Exit::storage, {dir_ / "x"}, "a folder in its place",
               [&] { write_file_atomic(dir_ / "x", "content"); });
  EXPECT_EQ(list_directory(dir_.path()), std::vector<std::string>{"x"});
}

TEST_F(RunFolderTest, NamesOfSteps) {
  EXPECT_EQ(step_name(10), "step-000010");
  EXPECT_EQ(step_name(1234567), "step-1234567");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// The parts of `--local`: words and environment for the launcher, its folders, a terminal as stdin of a rank.

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "src/comm/alone/launcher.h"
#include "src/run/local/job_folder.h"
#include "src/run/local/launcher_program.h"
#include "src/run/local/stdin_relay.h"
#include "src/run/verbs/local/local_command.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

using Words = std::vector<std::string>;

Words of_rank(Words words) {
  words.insert(words.begin(), "temper");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return words_of_rank(static_cast<int>(argv.size()), argv.data());
}

TEST(LocalJob, ARankIsAskedTheSameButForTheOption) {
  EXPECT_EQ(of_rank({"train", "c.toml", "--local", "2", "run.seed=1"}),
            (Words{"train", "c.toml", "run.seed=1"}));
  EXPECT_EQ(of_rank({"train", "--local=2", "c.toml"}), (Words{"train", "c.toml"}));
  EXPECT_EQ(of_rank({"train", "--local", "2", "--", "--local"}), (Words{"train", "--", "--local"}));
  EXPECT_EQ(of_rank({"train", "--locale", "2"}), (Words{"train", "--locale", "2"}));
}

TEST(LocalJob, TheLauncherTakesNoPartInAJobOfAScheduler) {
  ::setenv("SLURM_PROCID", "0", 1);
  ::setenv("SLURM_JOB_ID", "17", 1);
  ::setenv("OMPI_MCA_ras", "slurm", 1);
  ::setenv("OMPI_MCA_pml", "ob1", 1);
  const Words all = launcher_environment("/tmp/x", "", "name");
  const auto has = [&](const char* variable) { return std::count(all.begin(), all.end(), variable); };
  EXPECT_EQ(has("SLURM_PROCID=0"), 0);
  EXPECT_EQ(has("SLURM_JOB_ID=17"), 1) << "the programs of the ranks may look at it";
  EXPECT_EQ(has("OMPI_MCA_pml=ob1"), 1) << "a setting of the user";
  EXPECT_EQ(has("OMPI_MCA_ras=slurm"), 0);
  EXPECT_EQ(
      std::count_if(all.begin(), all.end(), [](const auto& v) { return v.starts_with("OMPI_MCA_ras="); }), 1);
  EXPECT_EQ(has("TEMPER_LOCAL_PARENT=name"), 1);
  for (const char* name : {"SLURM_PROCID", "SLURM_JOB_ID", "OMPI_MCA_ras", "OMPI_MCA_pml"}) ::unsetenv(name);
}

TEST(LocalJob, AShellOfSrunAndABatchScriptAreNoRanks) {
  const std::pair<const char*, std::pair<Words, const char*>> cases[] = {
      {"nothing", {{}, ""}},
      {"a batch script", {{"SLURM_PROCID"}, ""}},
      {"a shell", {{"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_PTY_PORT"}, ""}},
      {"srun", {{"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"}, "SLURM_PROCID"}},
      {"another MPI", {{"PMI_RANK"}, "PMI_RANK"}},
      {"PMIx", {{"PMIX_RANK"}, "PMIX_RANK"}},
  };
  for (const auto& [name, set] : cases) {
    for (const std::string& variable : set.first) ::setenv(variable.c_str(), "1", 1);
    EXPECT_EQ(variable_of_launcher(), set.second) << name;
    for (const std::string& variable : set.first) ::unsetenv(variable.c_str());
  }
}

void make_old(const std::string& folder) {
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  ::utimensat(AT_FDCWD, folder.c_str(), times, 0);
}

/// One whose job lives is locked; one that was just made may not be locked yet.
TEST(LocalJob, OnlyFoldersThatJobsHaveLeftAreRemoved) {
  const TempDir folder;
  const auto make = [&](const std::string& name) {
    std::filesystem::create_directories(folder / name + "/below");
    make_old(folder / name);
    return folder / name;
  };
  const std::string left = make("temper-local-abcdef"), lives = make("temper-local-ghijkl"),
                    young = make("temper-local-mnopqr"), other = make("temper-local-abcdefg"),
                    users = make("temper-locals");
  std::filesystem::create_directory(young + "/new");
  const int lock = ::open(lives.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  remove_left_job_folders(folder.path());
  remove_left_job_folders(folder / "none");
  EXPECT_FALSE(std::filesystem::exists(left));
  for (const std::string& stays : {lives, young, other, users})
    EXPECT_TRUE(std::filesystem::exists(stays)) << stays;
  ::close(lock);
  remove_left_job_folders(folder.path());
  EXPECT_FALSE(std::filesystem::exists(lives));
}

TEST(LocalJob, WhatIsTypedComesToTheRank) {
  int keyboard = -1, terminal = -1;
  ASSERT_EQ(::openpty(&keyboard, &terminal, nullptr, nullptr, nullptr), 0);
  StdinRelay relay(terminal);
  ASSERT_NE(relay.reads(), terminal);
  const int rank = ::dup(relay.reads());
  relay.close_reads();
  EXPECT_EQ(relay.reads(), terminal);
  relay.look();  // nothing was typed
  char text[16];
  for (const std::string& line : {std::string("one\n"), std::string("two\n")}) {
    ASSERT_EQ(::write(keyboard, line.data(), line.size()), 4);
    relay.look();
    ASSERT_EQ(::read(rank, text, sizeof text), 4);
    EXPECT_EQ(std::string(text, 4), line);
  }
  ASSERT_EQ(::write(keyboard, "\x04", 1), 1);
  relay.look();
  EXPECT_EQ(::read(rank, text, sizeof text), 0) << "Control-D is its end";
  for (const int descriptor : {keyboard, terminal, rank}) ::close(descriptor);
}

TEST(LocalJob, AFileIsTheRanksOwn) {
  const StdinRelay none(-1);
  EXPECT_EQ(none.reads(), -1);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  StdinRelay relay(ends[0]);
  EXPECT_EQ(relay.reads(), ends[0]);
  relay.look();
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

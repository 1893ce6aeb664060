#include "src/run/record/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace temper {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char b : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", b);
    text += two;
  }
  return text;
}

TEST(Tensorboard, Crc32cKnownAnswers) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

TEST(Tensorboard, GoldenRecords) {
  EXPECT_EQ(hex(event_file_header(1.0)),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  EXPECT_EQ(hex(scalar_event(2.0, 7, {{"loss", 0.5}})),
            "1a00000000000000129bd82d090000000000000040"
            "1007"
            "2a0d0a0b0a046c6f7373150000003fc33fc24a");
}

TEST(Tensorboard, TruncationKeepsEarlierStepsAndDropsACutRecord) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("temper_tb_" + std::to_string(::getpid()))).string();
  make_directories(folder);
  const std::string path = join_path(folder, "events.out.tfevents.1.host.1");
  const std::string head =
      event_file_header(1.0) + scalar_event(2.0, 1, {{"a", 1}}) + scalar_event(2.0, 300, {{"a", 2}});
  const std::string later = scalar_event(3.0, 301, {{"a", 3}});
  write_file_atomic(path, head + later + later.substr(0, later.size() / 2));
  truncate_event_files(folder, 300);
  EXPECT_EQ(read_file(path, 1 << 20), head);
  remove_tree(folder);
}

TEST(Tensorboard, LaterStepsInTheMiddleGoAndWhatIsNoFileStays) {
  const TempDir folder;
  const std::string path = folder / "events.out.tfevents.1.host.1",
                    pipe = folder / "events.out.tfevents.2.host.2";
  const std::string head = event_file_header(1.0), one = scalar_event(2.0, 1, {{"a", 1}}),
                    nine = scalar_event(2.0, 9, {{"a", 2}});
  write_file_atomic(path, head + nine + one + nine);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  truncate_event_files(folder.path(), 8);
  EXPECT_EQ(read_file(path, 1 << 20), head + one);
  EXPECT_EQ(list_directory(folder.path()).size(), 2u) << "the pipe is there, no copy";
}

/// An hour of events a second is more than memory should hold: a file of more than 1 GiB, most of it a hole.
TEST(Tensorboard, AFileOfAnySizeIsLookedThrough) {
  const TempDir folder;
  const std::string path = folder / "events.out.tfevents.1.host.1";
  write_file_atomic(path, event_file_header(1.0) + scalar_event(2.0, 1, {{"a", 1}}));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  std::filesystem::resize_file(path, (uint64_t{1} << 30) + (1 << 20));
  const uint64_t length = (uint64_t{1} << 30) + (1 << 19);
  std::FILE* const file = std::fopen(path.c_str(), "r+");
  std::fseek(file, static_cast<long>(size), SEEK_SET);
  std::fwrite(&length, sizeof length, 1, file);
  std::fseek(file, static_cast<long>(size) + 21, SEEK_SET);
  std::fwrite("\x10\x09", 2, 1, file);
  std::fclose(file);
  truncate_event_files(folder.path(), 8);
  EXPECT_GE(static_cast<int64_t>(std::filesystem::file_size(path)), size);
  EXPECT_LT(std::filesystem::file_size(path), uint64_t{1} << 30) << "its record of step 9 is gone";
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

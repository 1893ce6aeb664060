#include "src/run/record/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

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

/// Files of any size, and what only has the name of one.
TEST(Tensorboard, NothingOfAFolderHoldsAStartUp) {
  const TempDir folder;
  const std::string large = folder / "events.out.tfevents.1.host.1", pipe = folder / "events.out.tfevents.2";
  const int64_t length = int64_t{3} << 30;
  std::string head(reinterpret_cast<const char*>(&length), sizeof length);
  OutputFile(large, OutputFile::Mode::create_new).write(head + "crc.");
  std::filesystem::resize_file(large, static_cast<size_t>(length + 16));  // zeros that take no room
  OutputFile(large, OutputFile::Mode::append).write(scalar_event(2.0, 1, {{"a", 1}}));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0644), 0);
  const int64_t bytes = InputFile(large).size();
  truncate_event_files(folder.path(), 300);
  EXPECT_EQ(InputFile(large).size(), bytes);
  EXPECT_EQ(list_directory(folder.path()).size(), 2u);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

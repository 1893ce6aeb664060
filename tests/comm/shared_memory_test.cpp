// The folder of shared memory: what is free, what killed jobs left, and what is said about it.

#include "src/comm/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace temper {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

/// A file of a minute ago.
void leave(const std::string& path, int64_t bytes) {
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR, 0600);
  const std::string content(static_cast<size_t>(bytes), 'x');
  ASSERT_EQ(::write(file, content.data(), content.size()), bytes);
  const timespec old[2] = {{::time(nullptr) - 60, 0}, {::time(nullptr) - 60, 0}};
  ASSERT_EQ(::futimens(file, old), 0);
  ::close(file);
}

TEST(SharedMemory, FilesOfKilledJobsAreFound) {
  const TempDir folder;
  leave(folder / "vader_segment.host.0.aa.0", 8192);
  leave(folder / "vader_segment.host.0.aa.1", 16384);
  leave(folder / "vader_segment.host.0.bb.0", 8192);
  leave(folder / "sem.of_another_program", 8192);
  const int file = ::open((folder / "vader_segment.host.0.bb.0").c_str(), O_RDWR);
  void* const used = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  std::vector<std::string> names;
  const SharedMemory found = look_at_shared_memory(folder.path());
  for (const auto& left : found.left) names.push_back(left.name);
  EXPECT_EQ(names, (std::vector<std::string>{"vader_segment.host.0.aa.1", "vader_segment.host.0.aa.0"}));
  EXPECT_GE(found.left_bytes(), 24576);
  EXPECT_TRUE(found.usable);
  EXPECT_GT(found.free, 0);
  ::munmap(used, 8192);
  EXPECT_EQ(look_at_shared_memory(folder.path()).left.size(), 3u) << "that job has ended, too";
}

TEST(SharedMemory, ANewFileMayBeInUseSoon) {
  const TempDir folder;
  ::close(::open((folder / "vader_segment.host.0.aa.0").c_str(), O_CREAT | O_RDWR, 0600));
  EXPECT_TRUE(look_at_shared_memory(folder.path()).left.empty());
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "no \"" << word << "\" in: " << text;
}

TEST(SharedMemory, TooSmallIsSaidWithSizesFilesAndWhatToDo) {
  SharedMemory found{.usable = true, .free = 64 * kMib, .total = 64 * kMib, .left = {}};
  EXPECT_EQ(shared_memory_warning("/dev/shm", found, 16, 4 * kMib, ""), "") << "just enough";
  expect_words(shared_memory_warning("/dev/shm", found, 17, 4 * kMib, ""),
               {"/dev/shm is too small", "64.0 MiB free of 64.0 MiB", "17 ranks", "68.0 MiB in all", "SIGBUS",
                "--shm-size"});
  found.left = {{"vader_segment.h.0.aa.0", kMib}, {"vader_segment.h.0.aa.1", kMib}};
  expect_words(shared_memory_warning("/dev/shm", found, 17, 4 * kMib, "/tmp"),
               {"killed jobs have 2.0 MiB of it in 2 files", "rm /dev/shm/vader_segment.h.0.aa.*",
                "in this run they are in /tmp"});
}

TEST(SharedMemory, LitterIsSaidWhereThereIsRoomToo) {
  SharedMemory found{.usable = true,
                     .free = 1024 * kMib,
                     .total = 2048 * kMib,
                     .left = {{"vader_segment.h.0.aa.0", 33 * kMib}}};
  const std::string text = shared_memory_warning("/dev/shm", found, 2, 4 * kMib, "");
  expect_words(text, {"killed jobs have 33.0 MiB of it in 1 file\n", "rm /dev/shm/vader_segment.h.0.aa.*"});
  EXPECT_EQ(text.find("too small"), std::string::npos);
  found.left[0].bytes = 32 * kMib;
  EXPECT_EQ(shared_memory_warning("/dev/shm", found, 2, 4 * kMib, ""), "") << "a 64th of the folder";
  found.left[0].bytes = 65 * kMib;
  found.total = 1024 * 1024 * kMib;
  EXPECT_NE(shared_memory_warning("/dev/shm", found, 2, 4 * kMib, ""), "") << "much, of however much";
}

TEST(SharedMemory, AMissingFolderIsSaid) {
  const TempDir folder;
  const SharedMemory found = look_at_shared_memory(folder / "none");
  EXPECT_FALSE(found.usable);
  expect_words(shared_memory_warning("/dev/shm", found, 2, 4 * kMib, "/tmp"),
               {"/dev/shm is not there", "2 ranks", "/tmp"});
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

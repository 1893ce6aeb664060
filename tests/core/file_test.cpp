// What is no regular file is refused at once, by readers and by writers: an open that waited for the other
// end of a pipe would wait for ever.

#include "src/core/file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace temper {
namespace {

constexpr unsigned kHangSeconds = 60;  // then SIGALRM ends the test

class OddFiles : public ::testing::Test {
 protected:
  OddFiles() {
    ::alarm(kHangSeconds);
    EXPECT_EQ(::mkfifo(pipe_.c_str(), 0600), 0);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    (folder_ / "socket").copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~OddFiles() override {
    ::close(socket_);
    ::alarm(0);
  }
  std::vector<std::string> all() const { return {pipe_, folder_ / "socket", "/dev/zero", "/dev/tty"}; }

  TempDir folder_;
  const std::string pipe_ = folder_ / "pipe";
  int socket_ = -1;
};

TEST_F(OddFiles, AreNotRead) {
  for (const std::string& path : all())
    expect_error(Exit::data, {"not a regular file", path, "device, pipe or socket", "name a file"}, path,
                 [&] { InputFile file(path); });
  expect_error(Exit::data, {"not a regular file", "a folder"}, "folder", [&] { InputFile(folder_.path()); });
}

TEST_F(OddFiles, AreNotWritten) {
  for (const auto mode : {OutputFile::Mode::truncate, OutputFile::Mode::append})
    for (const std::string& path : all())
      expect_error(Exit::storage, {"not a regular file", path}, path, [&] { OutputFile file(path, mode); });
  write_file_atomic(folder_ / "file", "text");
  EXPECT_EQ(read_file(folder_ / "file", 4), "text");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

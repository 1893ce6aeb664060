// A file of choices: kept, shared between processes, and never a reason to stop.

#include "kernels/cuda/choice_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "src/core/file.h"
#include "tests/support/temp_dir.h"

namespace temper::cuda {
namespace {

TEST(ChoiceFile, KeepsWhatWasPut) {
  const TempDir folder;
  const std::string path = folder / "cache/deeper/choices.json";
  ChoiceFile first(path, "this GPU");
  EXPECT_EQ(first.find("4x5"), std::nullopt);
  first.put("4x5", "tile 7");
  first.put("4x6", "tile 8");
  first.put("4x5", "tile 9");
  const ChoiceFile second(path, "this GPU");
  EXPECT_EQ(second.find("4x5"), "tile 9");
  EXPECT_EQ(second.find("4x6"), "tile 8");
  EXPECT_EQ(second.find("4x7"), std::nullopt);
  EXPECT_EQ(list_directory(folder / "cache/deeper").size(), 1u) << "a temporary file was left";
}

TEST(ChoiceFile, ProcessesDoNotLoseEachOthersChoices) {
  const TempDir folder;
  const std::string path = folder / "choices.json";
  ChoiceFile a(path, "x"), b(path, "x");
  a.put("1", "one");
  b.put("2", "two");
  a.put("3", "three");
  const ChoiceFile all(path, "x");
  for (const char* name : {"1", "2", "3"}) EXPECT_TRUE(all.find(name)) << name;
}

TEST(ChoiceFile, HostileFilesAreMadeAgain) {
  const TempDir folder;
  const std::string path = folder / "choices.json";
  for (const std::string& content :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("\0\xff", 2),
        std::string(R"({"for":"x"})"), std::string(R"({"for":"x","choices":[]})"),
        std::string(R"({"for":"x","choices":{"1":2}})"), std::string(R"({"for":["x"],"choices":{"1":"a"}})"),
        std::string(R"({"for":"another GPU","choices":{"1":"a"}})"),
        std::string(R"({"for":"x","choices":{"1":"a"}})") + "x", std::string(200, '['),
        std::string(2 << 20, ' ')}) {
    write_file_atomic(path, content);
    ChoiceFile file(path, "x");
    EXPECT_EQ(file.find("1"), std::nullopt) << content.substr(0, 60);
    file.put("2", "b");
    EXPECT_EQ(ChoiceFile(path, "x").find("2"), "b") << content.substr(0, 60);
  }
}

TEST(ChoiceFile, AFolderThatCannotBeWrittenIsNoError) {
  const TempDir folder;
  write_file_atomic(folder / "file", "");
  for (const std::string& path : {std::string(), folder / "file/below/choices.json"}) {
    ChoiceFile file(path, "x");
    file.put("1", "a");
    EXPECT_EQ(file.find("1"), "a");
  }
}

TEST(ChoiceFile, CacheFolderOfTheUser) {
  ::setenv("HOME", "/home/someone", 1);
  ::setenv("XDG_CACHE_HOME", "/scratch/cache", 1);
  EXPECT_EQ(user_cache_folder(), "/scratch/cache/temper");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // to be ignored, says its specification
  EXPECT_EQ(user_cache_folder(), "/home/someone/.cache/temper");
  ::unsetenv("HOME");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(user_cache_folder(), "");
}

}  // namespace
}  // namespace temper::cuda

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

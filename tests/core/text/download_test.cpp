#include "src/core/text/download.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Download, ModelsOfTheHubAndOfKnownFamilies) {
  EXPECT_TRUE(
      has(model_download("Qwen/Qwen3-0.6B"), "`hf download Qwen/Qwen3-0.6B --local-dir models/Qwen3-0.6B`"));
  EXPECT_TRUE(
      has(model_download("my-org/model.v2"), "`hf download my-org/model.v2 --local-dir models/model.v2`"));
  EXPECT_TRUE(
      has(model_download("models/Qwen3-8B"), "`hf download Qwen/Qwen3-8B --local-dir models/Qwen3-8B`"));
  EXPECT_TRUE(
      has(model_download("/data/Llama-3.1-70B-Instruct"),
          "`hf download meta-llama/Llama-3.1-70B-Instruct --local-dir /data/Llama-3.1-70B-Instruct`"));
}

TEST(Download, DataOfTheHub) {
  for (const char* path : {"openai/gsm8k", "data/gsm8k/train.jsonl", "/work/data/gsm8k/test.jsonl"}) {
    EXPECT_TRUE(has(data_download(path), "`hf download openai/gsm8k --repo-type dataset")) << path;
    EXPECT_TRUE(has(data_download(path), "tools/gsm8k_data.py downloads/gsm8k")) << path;
  }
  EXPECT_TRUE(has(data_download("org/set"), "--local-dir downloads/set`"));
}

/// No command is made of what is a path of this machine, or could be more than one word of a shell.
TEST(Download, NothingForOtherPaths) {
  for (const char* path :
       {"", "/", "models/mine", "runs/demo/model", "../x/y", "./x", "a/b/c", "a/", "/a", "-x/y", "a/-y",
        "data/train.jsonl", "x/train.jsonl", "a b/c", "a/b;c", "a/$(b)", "models/Qwen `x`", "\n/Qwen3"}) {
    EXPECT_EQ(model_download(path), "") << path;
    EXPECT_EQ(data_download(path), "") << path;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

#pragma once
// Real data beside this repository: too large for it, or not ours to copy. Tests that want it are skipped
// where it is not there:
//   const std::string file = real_data("gsm8k/train.jsonl");
//   if (!path_exists(file)) GTEST_SKIP() << how_to_get(file);

#include <cstdlib>
#include <string>

#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {

/// A file or folder of the folder that the environment names.
inline std::string real_data(const std::string& name) {
  const char* folder = std::getenv("TEMPER_TEST_DATA");
  return join_path(folder == nullptr ? "../shared/data" : folder, name);
}

/// Unpacks a tokenizer of the real data into `folder`; false if it is not there.
inline bool unpack_tokenizer(const std::string& name, const std::string& folder) {
  const std::string source = real_data("tokenizers/" + name);
  if (!path_exists(source + "/tokenizer.json.gz")) return false;
  const std::string command =
      fmt::format("gunzip -c '{}/tokenizer.json.gz' > '{}/tokenizer.json'", source, folder);
  CHECK(std::system(command.c_str()) == 0, "cannot unpack {}", source);
  write_file_atomic(folder + "/tokenizer_config.json", read_file(source + "/tokenizer_config.json", 1 << 20));
  return true;
}

/// The line of a skipped test.
inline std::string how_to_get(const std::string& path) {
  return path + " is not there: set TEMPER_TEST_DATA to a folder with gsm8k/{train,test}.jsonl, " +
         "math/{math500,aime24,amc23}.jsonl, models/tinyzero/ (Hugging Face) and " +
         "tokenizers/{qwen2.5,qwen3,deepseek-v3}/{tokenizer.json.gz,tokenizer_config.json}";
}

}  // namespace temper

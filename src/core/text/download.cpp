#include "src/core/text/download.h"

#include <algorithm>
#include <string_view>

#include "src/core/check.h"

namespace temper {
namespace {

bool is_plain(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '/';
  };
  return !text.empty() && text[0] != '-' && text.size() <= 200 &&
         std::all_of(text.begin(), text.end(), plain);
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// OWNER/NAME, which a folder of this machine could be called as well: usual ones and files are not meant.
bool is_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  if (!is_plain(path) || slash == std::string::npos || path.find('/', slash + 1) != std::string::npos)
    return false;
  const std::string owner = path.substr(0, slash), name = path.substr(slash + 1);
  for (const char* folder : {"models", "data", "runs", "conf", "build", "tmp"})
    if (owner == folder) return false;
  for (const char* ending : {".json", ".jsonl", ".parquet"})
    if (name.ends_with(ending)) return false;
  return !owner.empty() && owner[0] != '.' && !name.empty() && name[0] != '.' && name[0] != '-';
}

constexpr const char* kOlder = "(of older packages: huggingface-cli download ...)";

std::string gsm8k_download() {
  return fmt::format(
      "`hf download openai/gsm8k --repo-type dataset --local-dir downloads/gsm8k` {} and then `python3 "
      "tools/gsm8k_data.py downloads/gsm8k` make data/gsm8k/train.jsonl and data/gsm8k/test.jsonl",
      kOlder);
}

}  // namespace

std::string model_download(const std::string& path) {
  const std::string name = last_part(path);
  const auto command = [&](const std::string& hub_name, const std::string& folder) {
    return fmt::format("`hf download {} --local-dir {}` {}", hub_name, folder, kOlder);
  };
  if (is_hub_name(path))
    return fmt::format("{} downloads it; then name models/{}", command(path, "models/" + name), name);
  if (!is_plain(path)) return "";
  if (name.starts_with("Qwen")) return command("Qwen/" + name, path) + " downloads it";
  if (name.starts_with("Llama-")) return command("meta-llama/" + name, path) + " downloads it";
  return "";
}

std::string data_download(const std::string& path) {
  const bool of_hub = is_hub_name(path);
  const bool made = path.find("data/gsm8k/") != std::string::npos;
  if (made || (of_hub && last_part(path) == "gsm8k")) return gsm8k_download();
  if (!of_hub) return "";
  return fmt::format(
      "`hf download {} --repo-type dataset --local-dir downloads/{}` {} downloads it; then name a JSONL file",
      path, last_part(path), kOlder);
}

}  // namespace temper

#include "src/io/folder_writer.h"

#include <algorithm>
#include <filesystem>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/io/model_folder.h"

namespace temper {
namespace {

constexpr int64_t kCopyWindow = int64_t{4} << 20;

/// Removes the unfinished folder unless it was committed.
class Unfinished {
 public:
  explicit Unfinished(std::string path) : path_(std::move(path)) {}
  ~Unfinished() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  void commit() { path_.clear(); }

 private:
  std::string path_;
};

void write_text(const std::string& path, const std::string& text) {
  OutputFile file(path, OutputFile::Mode::create_new);
  file.write(text);
  file.close();
}

void copy_companions(const std::string& from, const std::string& to) {
  std::vector<char> window(static_cast<size_t>(kCopyWindow));
  for (const Companion& file : companion_files(from)) {
    const InputFile in(file.path);
    OutputFile out(join_path(to, file.name), OutputFile::Mode::create_new);
    for (int64_t at = 0; at < in.size(); at += kCopyWindow) {
      const int64_t n = std::min(kCopyWindow, in.size() - at);
      in.read(window.data(), at, n);
      out.write(window.data(), n);
    }
    out.close();
  }
}

/// Sorted keys, as transformers writes it.
std::string index_text(const FolderPlan& plan, const std::vector<std::string>& names) {
  nlohmann::json index;
  int64_t total = 0;
  nlohmann::json& weight_map = index["weight_map"];
  for (size_t i = 0; i < plan.shards.size(); ++i)
    for (const TensorToWrite& t : plan.shards[i]) {
      weight_map[t.name] = names[i];
      total += t.bytes();
    }
  index["metadata"] = {{"total_parameters", plan.total_parameters}, {"total_size", total}};
  return index.dump(2) + "\n";
}

void write_content(const std::string& folder, const FolderPlan& plan) {
  const size_t count = plan.shards.size();
  std::vector<std::string> names{"model.safetensors"};
  if (count > 1) {
    names.clear();
    for (size_t i = 1; i <= count; ++i)
      names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i, count));
  }
  for (size_t i = 0; i < count; ++i) write_safetensors(join_path(folder, names[i]), plan.shards[i]);
  write_text(join_path(folder, "config.json"),
             plan.config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!plan.companions.empty()) copy_companions(plan.companions, folder);
  if (count > 1) write_text(join_path(folder, "model.safetensors.index.json"), index_text(plan, names));
  sync_directory(folder);
}

std::string checked_target(std::string out) {
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  const auto refuse = [&](const std::string& why) {
    fail(Exit::usage, {.what = "cannot write the model folder",
                       .where = out.empty() ? "--out" : out,
                       .why = why,
                       .fix = "name a folder that does not exist yet"});
  };
  if (out.empty()) refuse("the path is empty");
  if (path_exists(out) && !is_directory(out)) refuse("it is a file");
  if (path_exists(out) && !list_directory(out).empty()) refuse("it exists and is not empty");
  if (path_exists(out + ".tmp") && !is_directory(out + ".tmp")) refuse(out + ".tmp is in the way");
  return out;
}

}  // namespace

void write_model_folder(const std::string& out, const FolderPlan& plan) {
  CHECK(!plan.shards.empty(), "no weights for {}", out);
  const std::string target = checked_target(out), temporary = target + ".tmp";
  if (path_exists(temporary)) remove_tree(temporary);
  make_directories(temporary);
  Unfinished unfinished(temporary);
  write_content(temporary, plan);
  rename_path(temporary, target);
  unfinished.commit();
}

std::vector<std::vector<TensorToWrite>> split_shards(std::vector<TensorToWrite> tensors,
                                                     int64_t shard_bytes) {
  std::vector<std::vector<TensorToWrite>> shards;
  int64_t filled = 0;
  for (TensorToWrite& t : tensors) {
    if (shards.empty() || filled + t.bytes() > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += t.bytes();
    shards.back().push_back(std::move(t));
  }
  return shards;
}

}  // namespace temper

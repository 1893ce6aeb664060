#include "src/io/hf/folder_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {
namespace {

constexpr int64_t kCopyWindow = int64_t{4} << 20;

std::string temporary_name(const std::string& target) { return target + ".tmp"; }

/// A new folder beside the target, locked while its process lives; removed unless it was committed.
class Unfinished {
 public:
  explicit Unfinished(const std::string& target) {
    for (int number = 0; !try_make(fmt::format("{}.{}-{}", temporary_name(target), ::getpid(), number));
         ++number) {
    }
  }
  ~Unfinished() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    ::close(lock_);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  const std::string& path() const { return path_; }
  /// False when another writer was faster.
  bool commit(const std::string& target) {
    if (!rename_folder(path_, target)) return false;
    path_.clear();
    return true;
  }

 private:
  /// False when there is one of that name, or when somebody took it for an abandoned one before it was
  /// locked.
  bool try_make(const std::string& path) {
    if (path_exists(path)) return false;
    if (::mkdir(path.c_str(), 0777) != 0) {
      if (errno == EEXIST) return false;
      fail(Exit::storage, {.what = "cannot create folder",
                           .where = path,
                           .why = std::strerror(errno),
                           .fix = "check the permissions and the space of this file system"});
    }
    lock_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock_ < 0) return false;
    const bool taken = ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && path_exists(path)) {
      path_ = path;
      return true;
    }
    ::close(lock_);
    return false;
  }

  std::string path_;
  int lock_ = -1;
};

/// Those whose process has ended: nobody holds their lock.
void remove_abandoned(const std::string& target) {
  const std::filesystem::path parent = std::filesystem::path(target).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const std::string prefix = std::filesystem::path(temporary_name(target)).filename().string();
  for (const std::string& name : list_directory(folder)) {
    if (!name.starts_with(prefix + ".") || !is_temporary(name)) continue;
    const std::string path = join_path(folder, name);
    const int lock = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0) continue;
    std::error_code gone;
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(path, gone);
    ::close(lock);
  }
}

void write_text(const std::string& path, const std::string& text) {
  OutputFile file(path, OutputFile::Mode::create_new);
  file.write(text);
  file.close();
}

void copy_companions(const std::vector<Companion>& files, const std::string& to) {
  std::vector<char> window(static_cast<size_t>(kCopyWindow));
  for (const Companion& file : files) {
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
  std::vector<std::string> names{plan.weights_name};
  if (count > 1) {
    names.clear();
    for (size_t i = 1; i <= count; ++i)
      names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i, count));
  }
  for (size_t i = 0; i < count; ++i) write_safetensors(join_path(folder, names[i]), plan.shards[i]);
  write_text(join_path(folder, plan.config_name),
             plan.config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  copy_companions(plan.companions, folder);
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
  return out;
}

}  // namespace

void write_model_folder(const std::string& out, const FolderPlan& plan) {
  CHECK(!plan.shards.empty(), "no weights for {}", out);
  const std::string target = checked_target(out);
  if (const std::string parent = std::filesystem::path(target).parent_path().string(); !parent.empty())
    make_directories(parent);
  remove_abandoned(target);
  Unfinished unfinished(target);
  write_content(unfinished.path(), plan);
  if (!unfinished.commit(target))
    fail(Exit::busy, {.what = "cannot write the model folder",
                      .where = target,
                      .why = "another process has made it meanwhile",
                      .fix = "use that one, or name a folder that does not exist yet"});
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

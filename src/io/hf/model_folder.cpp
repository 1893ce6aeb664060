#include "src/io/hf/model_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "src/core/check.h"
#include "src/core/text/download.h"
#include "src/core/text/pattern.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/io/hf/fused_experts.h"
#include "src/io/hf/tensor_prefix.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 512;
constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  for (char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) return false;
  }
  return true;
}

/// Mode of the path itself (links not followed); 0 if nothing is there.
mode_t mode_of(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return info.st_mode;
  if (errno == ENOENT || errno == ENOTDIR) return 0;
  fail(Exit::storage, {.what = "cannot stat file",
                       .where = path,
                       .why = std::strerror(errno),
                       .fix = "check the permissions and the file system"});
}

/// Where a link of the folder may lead: to a file beside it, or from snapshots/<revision> to
/// ../../blobs/<digest>.
std::string follow_link(const std::string& folder, const std::string& link) {
  std::error_code error;
  const std::string target = fs::read_symlink(link, error).string();
  if (error)
    fail(Exit::storage, {.what = "cannot read link",
                         .where = link,
                         .why = error.message(),
                         .fix = "check the permissions and the file system"});
  if (is_plain_name(target)) return join_path(folder, target);
  constexpr std::string_view kBlobs = "../../blobs/";
  const fs::path real = fs::canonical(folder, error);
  if (!error && target.starts_with(kBlobs) && is_plain_name(std::string_view(target).substr(kBlobs.size())) &&
      real.parent_path().filename() == "snapshots")
    return (real.parent_path().parent_path() / "blobs" / target.substr(kBlobs.size())).string();
  fail(Exit::data,
       {.what = "link out of the model folder",
        .where = link,
        .why = "it points to " + quote_name(target) +
               "; only the Hugging Face cache's own links (snapshots/* -> ../../blobs/*) may leave a folder",
        .fix = "put the file itself into the folder"});
}

std::string require_in_folder(const std::string& folder, const std::string& name, const std::string& why) {
  std::string path = find_in_folder(folder, name);
  if (path.empty())
    fail(Exit::data, {.what = quote_name(name) + " is missing from the model folder",
                      .where = join_path(folder, name),
                      .why = why,
                      .fix = "fetch the whole folder again"});
  return path;
}

std::map<std::string, std::string> read_weight_map(const std::string& path) {
  const std::string text = read_file(path, kMaxIndexBytes);
  std::map<std::string, std::string> weight_map;
  bool found = false;
  for_each_member(text, path, [&](const std::string& key, std::string_view value) {
    if (key != "weight_map") return;
    found = true;
    for_each_member(value, path + ": weight_map", [&](const std::string& tensor, std::string_view file) {
      const std::string where = path + ": weight_map entry " + quote_name(tensor);
      const Json name = parse_json(file, where, {.depth = 1, .bytes = kMaxMemberBytes});
      if (!name.is_string() || !is_plain_name(name.get_ref<const std::string&>()))
        fail(Exit::data, {.what = "bad file name in the index",
                          .where = where,
                          .why = name.dump(-1, ' ', true).substr(0, 200) +
                                 " is not a plain file name (letters, digits, '.', '_', '-', no slash)",
                          .fix = "name a file of the same folder"});
      weight_map[tensor] = name.get<std::string>();
    });
  });
  if (!found || weight_map.empty())
    fail(Exit::data, {.what = "the index has no tensors",
                      .where = path,
                      .why = "\"weight_map\" is missing or empty",
                      .fix = "fetch the index again"});
  return weight_map;
}

}  // namespace

std::string find_in_folder(const std::string& folder, const std::string& name) {
  CHECK(is_plain_name(name), "file name {}", name);
  std::string path = join_path(folder, name);
  mode_t mode = mode_of(path);
  if (mode == 0) return "";
  if (S_ISLNK(mode)) {
    const std::string link = path;
    path = follow_link(folder, link);
    mode = mode_of(path);
    if (mode == 0)
      fail(Exit::data, {.what = "link to a file that does not exist",
                        .where = link,
                        .why = path + " is missing",
                        .fix = "fetch the model again"});
  }
  if (!S_ISREG(mode))
    fail(Exit::data, {.what = "not a regular file",
                      .where = path,
                      .why = "a model folder holds plain files only",
                      .fix = "put the file itself there"});
  return path;
}

std::vector<Companion> companion_files(const std::string& folder, const TokenizerPlace& tokenizer) {
  constexpr const char* kOfTokenizer[] = {"tokenizer.json",
                                          "tokenizer_config.json",
                                          "chat_template.jinja",
                                          "chat_template.json",
                                          "merges.txt",
                                          "vocab.json",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "tokenizer.model",
                                          "tiktoken.model"};
  constexpr const char* kOthers[] = {"generation_config.json",
                                     "preprocessor_config.json",
                                     "processor_config.json",
                                     "video_preprocessor_config.json",
                                     "LICENSE",
                                     "LICENSE.txt"};
  std::vector<Companion> files;
  const auto add = [&](const std::string& from, const std::string& name) {
    const bool other = name == "chat_template.jinja" && !tokenizer.chat_template.empty();
    std::string path = other ? tokenizer.chat_template : find_in_folder(from, name);
    if (!path.empty()) files.push_back({name, std::move(path)});
  };
  for (const char* name : kOfTokenizer) add(tokenizer.folder.empty() ? folder : tokenizer.folder, name);
  for (const char* name : kOthers) add(folder, name);
  return files;
}

std::optional<Json> read_config_file(const std::string& folder, const std::string& name,
                                     std::vector<FileDigest>* read) {
  const std::string path = find_in_folder(folder, name);
  if (path.empty()) return std::nullopt;
  const std::string text = read_file(path, kConfigLimits.bytes);
  if (read) read->push_back(digest_of_text(join_path(folder, name), text));
  return parse_json(text, path, kConfigLimits);
}

void refuse_run_folder(const std::string& path) {
  if (path_exists(join_path(path, "config.json"))) return;
  const bool is_step = path_exists(join_path(path, kManifestName));
  const bool is_run = is_directory(join_path(path, "checkpoints")) || !list_checkpoints(path).empty();
  if (!is_step && !is_run) return;
  fail(Exit::data,
       {.what = "this is no model folder",
        .where = path,
        .why = is_step ? "it is a checkpoint" : "it is the folder of a run",
        .fix = fmt::format("make one of it: temper export --checkpoint {} --out DIR; generate, score "
                           "and eval take it as it is: --checkpoint {}",
                           path, path)});
}

ModelFolder ModelFolder::open(const std::string& path, Weights weights) {
  if (!path_exists(path)) {
    const std::string download = model_download(path);
    fail(Exit::usage,
         {.what = "no such model folder",
          .where = path,
          .why = "the path does not exist",
          .fix = download.empty() ? "give the folder that holds config.json and the safetensors files"
                                  : download});
  }
  if (!is_directory(path))
    fail(Exit::usage, {.what = "not a model folder",
                       .where = path,
                       .why = "it is a file",
                       .fix = "give the folder that holds config.json and the safetensors files"});
  refuse_run_folder(path);
  ModelFolder folder;
  folder.path_ = path;
  require_in_folder(path, "config.json", "every model has one");
  folder.config_ = read_config_file(path, "config.json", &folder.config_files_).value();
  folder.generation_config_ = read_config_file(path, "generation_config.json", &folder.config_files_);
  companion_files(path);  // an export copies them at the end of a run; a bad link is refused now
  folder.open_weights(weights);
  return folder;
}

void ModelFolder::open_weights(Weights weights) {
  const std::string index = find_in_folder(path_, kIndexName);
  const std::string single = find_in_folder(path_, kSingleName);
  if (!index.empty()) {
    open_indexed(index);
    if (!single.empty() && !files_.contains(kSingleName))
      warnings_.push_back(
          fmt::format("{} has both {} and {}: the weights are read from the {} files that the index names, "
                      "{} is not read "
                      "(other programs may read it instead)",
                      path_, kSingleName, kIndexName, files_.size(), kSingleName));
    return;
  }
  if (single.empty() && weights == Weights::optional) return;
  if (single.empty())
    fail(Exit::data,
         {.what = "the model folder has no weights",
          .where = path_,
          .why = fmt::format("neither {} nor {} is in it", kSingleName, kIndexName),
          .fix = "fetch the safetensors files (pickle files are not read), or use model.init = \"random\""});
  add_file(kSingleName);
}

void ModelFolder::open_indexed(const std::string& index_path) {
  const std::map<std::string, std::string> weight_map = read_weight_map(index_path);
  std::map<std::string, std::string> first_tensor;
  for (const auto& [tensor, file] : weight_map) first_tensor.emplace(file, tensor);
  if (first_tensor.size() > kMaxFiles)
    fail(Exit::data, {.what = "too many weight files",
                      .where = index_path,
                      .why = fmt::format("{} files, the limit is {}", first_tensor.size(), kMaxFiles),
                      .fix = "check that this is the index of a model"});
  for (const auto& [file, tensor] : first_tensor)
    require_in_folder(path_, file, fmt::format("{} puts tensor {} there", kIndexName, quote_name(tensor)));
  for (const auto& [file, tensor] : first_tensor) add_file(file);
  check_index(weight_map);
}

void ModelFolder::add_file(const std::string& name) {
  auto file = std::make_unique<SafetensorsFile>(find_in_folder(path_, name), name);
  for (const auto& [tensor, info] : file->tensors())
    if (const auto [at, fresh] = tensors_.emplace(tensor, info); !fresh)
      fail(Exit::data, {.what = "tensor " + quote_name(tensor) + " is in two files",
                        .where = path_,
                        .why = at->second.file + " and " + name + " both hold it",
                        .fix = "each tensor must be in exactly one file"});
  files_[name] = std::move(file);
}

void ModelFolder::check_index(const std::map<std::string, std::string>& weight_map) const {
  const std::string where = join_path(path_, kIndexName);
  for (const auto& [tensor, file] : weight_map) {
    const auto it = tensors_.find(tensor);
    if (it == tensors_.end())
      fail(Exit::data, {.what = "tensor " + quote_name(tensor) + " is missing",
                        .where = where,
                        .why = "the index puts it into " + file + ", which does not hold it",
                        .fix = "fetch the weight files and their index again"});
    if (it->second.file != file)
      fail(Exit::data, {.what = "tensor " + quote_name(tensor) + " is in the wrong file",
                        .where = where,
                        .why = "the index puts it into " + file + ", it is in " + it->second.file,
                        .fix = "fetch the weight files and their index again"});
  }
  for (const auto& [tensor, info] : tensors_)
    if (!weight_map.contains(tensor))
      fail(Exit::data, {.what = "tensor " + quote_name(tensor) + " is not in the index",
                        .where = where,
                        .why = info.file + " holds it, weight_map does not name it",
                        .fix = "fetch the weight files and their index again"});
}

void ModelFolder::match_names(const ModelConfig& config) {
  stored_names_.merge(match_tensor_prefix(tensors_, config, path_));
  FusedExperts fused = split_fused_experts(tensors_, config, path_);
  fused_files_.merge(fused.files);
  joined_ = std::move(fused.joined);
  if (tensors_.empty()) return;
  const std::vector<JoinedTensor> grouped = grouped_inputs(config);
  runs_ = split_joined(tensors_, grouped, path_);
  joined_.insert(joined_.end(), grouped.begin(), grouped.end());
}

const std::string& ModelFolder::stored_name(const std::string& tensor) const {
  const auto at = stored_names_.find(tensor);
  return at == stored_names_.end() ? tensor : at->second;
}

bool ModelFolder::may_be_unused(const std::string& tensor) const {
  return std::any_of(allowed_.begin(), allowed_.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, tensor); });
}

int64_t ModelFolder::count_tensors(const std::string& prefix) const {
  return std::count_if(tensors_.begin(), tensors_.end(),
                       [&](const auto& tensor) { return tensor.first.starts_with(prefix); });
}

std::vector<std::string> ModelFolder::tensor_order() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : tensors_) names.push_back(name);
  const auto place = [&](const std::string& name) {
    const TensorInfo& info = tensors_.at(name);
    return std::tuple(info.file, fused_files_.contains(info.file) ? 0 : info.begin, name);
  };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return names;
}

std::vector<std::string> ModelFolder::files() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

const std::map<std::string, std::string>& ModelFolder::metadata(const std::string& file) const {
  return files_.at(file)->metadata();
}

void ModelFolder::read(const std::string& tensor, int64_t first, int64_t count, void* destination) const {
  const auto it = tensors_.find(tensor);
  CHECK(it != tensors_.end(), "no tensor {} in {}", tensor, path_);
  const int bits = dtype_bits(it->second.dtype);
  CHECK(bits % 8 == 0, "elements of {} ({}) are not whole bytes", tensor, it->second.dtype);
  read_bytes(tensor, first * (bits / 8), count * (bits / 8), destination);
}

void ModelFolder::read_bytes(const std::string& tensor, int64_t first, int64_t count,
                             void* destination) const {
  const auto it = tensors_.find(tensor);
  CHECK(it != tensors_.end(), "no tensor {} in {}", tensor, path_);
  const TensorInfo& info = it->second;
  CHECK(first >= 0 && count >= 0 && first <= info.end - info.begin - count, "bytes {}+{} of {}", first, count,
        tensor);
  *bytes_read_ += count;
  const SafetensorsFile& file = *files_.at(info.file);
  const auto runs = runs_.find(tensor);
  if (runs == runs_.end()) return file.read(info.begin + first, count, destination);
  auto* to = static_cast<char*>(destination);
  for (const ByteRun& run : runs->second) {
    const int64_t begin = std::min(first, run.bytes), bytes = std::min(count, run.bytes - begin);
    if (bytes > 0) file.read(run.begin + begin, bytes, to);
    to += bytes, count -= bytes, first -= begin;
  }
}

}  // namespace temper

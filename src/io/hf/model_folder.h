#pragma once
// A Hugging Face model folder, opened: config.json and generation_config.json parsed, the headers of all
// weight files validated and matched with the index. Everything in it is untrusted: names from the index are
// plain file names, links may not leave the folder but in the pattern of the Hugging Face cache (snapshots/*
// -> ../../blobs/*), and data is only read in the windows asked for. After `open` every tensor lies wholly
// inside its file.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/core/digest/file_digest.h"
#include "src/core/json.h"
#include "src/io/hf/joined_tensors.h"
#include "src/io/hf/safetensors.h"
#include "src/nn/model_config.h"

namespace temper {

class ModelFolder {
 public:
  /// `required`: weights must be there. `optional`: a folder of config and tokenizer alone (random
  /// initialisation) is fine too; weights that are there are still validated.
  enum class Weights { required, optional };
  static ModelFolder open(const std::string& path, Weights weights = Weights::required);
  /// From here on tensors are seen as `config`, that of this folder, calls them: experts that the files hold
  /// as one tensor of all a tensor each (fused_experts.h), inputs of delta nets apart (joined_tensors.h),
  /// text models under one prefix (tensor_prefix.h).
  void match_names(const ModelConfig& config);
  /// Those of them that are written as the files have them.
  const std::vector<JoinedTensor>& joined() const { return joined_; }
  /// What the files call a tensor.
  const std::string& stored_name(const std::string& tensor) const;
  /// Names, or patterns with *, of tensors that may be left over: nobody reads them, and an export writes
  /// them back as they are.
  void allow_unused(std::vector<std::string> patterns) { allowed_ = std::move(patterns); }
  bool may_be_unused(const std::string& tensor) const;

  const std::string& path() const { return path_; }
  std::string config_path() const { return join_path(path_, "config.json"); }
  const Json& config() const { return config_; }
  const std::optional<Json>& generation_config() const { return generation_config_; }
  /// What those two files held.
  const std::vector<FileDigest>& config_files() const { return config_files_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  /// Those that begin so.
  int64_t count_tensors(const std::string& prefix) const;
  /// Names of the tensors, file by file in the order of their data; by name in a file of fused experts, as in
  /// one of single ones.
  std::vector<std::string> tensor_order() const;
  /// Names of the weight files, ascending.
  std::vector<std::string> files() const;
  const std::map<std::string, std::string>& metadata(const std::string& file) const;
  /// What is odd but not wrong, for the log.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Elements [first, first + count) of a tensor, in the dtype of the file (whole bytes per element only).
  void read(const std::string& tensor, int64_t first, int64_t count, void* destination) const;
  /// Bytes [first, first + count) of a tensor of any dtype.
  void read_bytes(const std::string& tensor, int64_t first, int64_t count, void* destination) const;
  /// Bytes of tensors that were read so far.
  int64_t bytes_read() const { return *bytes_read_; }

 private:
  ModelFolder() = default;
  void open_weights(Weights weights);
  void open_indexed(const std::string& index_path);
  void add_file(const std::string& name);
  void check_index(const std::map<std::string, std::string>& weight_map) const;

  std::string path_;
  Json config_;
  std::optional<Json> generation_config_;
  std::vector<FileDigest> config_files_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> stored_names_;  // of those that are seen under another one
  std::set<std::string> fused_files_;
  std::vector<JoinedTensor> joined_;
  std::map<std::string, std::vector<ByteRun>> runs_;  // of those that lie in several
  std::vector<std::string> allowed_;
  std::vector<std::string> warnings_;
  std::unique_ptr<std::atomic<int64_t>> bytes_read_ = std::make_unique<std::atomic<int64_t>>(0);
};

/// Exit::data where a path that is to be a model is a run or a checkpoint: says how it becomes one.
void refuse_run_folder(const std::string& path);

/// Path of the regular file `name` of a model folder after the link rules above; empty if there is none.
std::string find_in_folder(const std::string& folder, const std::string& name);
struct Companion {
  std::string name, path;
};
/// Where the tokenizer of a model lies that is not in the folder of its weights. Empty: it is there.
struct TokenizerPlace {
  std::string folder = {}, chat_template = {};  // the second: a file in the place of chat_template.jinja
};
/// Tokenizer, template, generation and licence files of a folder, those that are there, after the link rules.
std::vector<Companion> companion_files(const std::string& folder, const TokenizerPlace& tokenizer = {});
/// Limits for config.json and its like.
inline constexpr JsonLimits kConfigLimits{.depth = 32, .bytes = 256 << 10};
/// Such a file of a folder, after the link rules; nothing where it is not there. `read` gets what it held,
/// under its path in the folder.
std::optional<Json> read_config_file(const std::string& folder, const std::string& name,
                                     std::vector<FileDigest>* read);

}  // namespace temper

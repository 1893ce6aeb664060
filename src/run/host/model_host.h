#pragma once
// A process that runs models, as every verb needs it that computes with one: its device, threads and type,
// the models it loads, and what turns their tokens into text.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "src/comm/comm.h"
#include "src/config/config.h"
#include "src/core/digest/file_digest.h"
#include "src/data/chat_template.h"
#include "src/data/tokenizer/tokenizer.h"
#include "src/io/hf/model_folder.h"
#include "src/models/model.h"
#include "src/ops/backend.h"
#include "src/run/plan/plan.h"

namespace temper {

/// Where the weights of a model come from.
struct ModelSource {
  std::string folder;
  std::optional<int64_t> context_tokens = {};  // rope tables go up to here; absent: from config.json
  bool random = false;                         // weights are drawn from `seed`, not read
  uint64_t seed = 0;
  std::string digest = {};                     // weights of another one are refused; empty: any
  std::string digest_from = "model.digest";    // what says so
  std::set<std::string> frozen = {};           // ModelConfig::frozen
  AdapterConfig adapters = {};                 // ModelConfig::adapters
  std::string adapter_folder = {};             // of PEFT: theirs; empty: fresh ones
  std::string checkpoint = {};                 // its weights are taken, not those of the folder; empty: none
  std::vector<std::string> allow_unused = {};  // ModelFolder::allow_unused
  TokenizerPlace tokenizer = {};
};
/// Those of a PEFT folder, beside the weights of the source's.
void add_adapters(ModelSource& source, const std::string& folder);
/// The first weights of a run.
ModelSource first_weights(const Config& config, const RunPlan& plan);

class ModelHost {
 public:
  ModelHost(Device device, DType dtype, int threads) : dtype_(dtype), backend_(device, threads) {}

  Ctx& ctx() { return backend_.ctx(); }
  DType dtype() const { return dtype_; }
  /// `options` says what the host and the source do not: layers, splits, gradients. Warnings of the folder
  /// are logged. Exit::data for weights of another digest than the source's. `ranks`: they load the model
  /// together (import_weights); null: this one loads it alone.
  std::unique_ptr<Model> load(const ModelSource& source, ModelOptions options = {}, Comm* ranks = nullptr);
  /// Size and digest of the weights that were loaded for a folder, as stored; no digest: random ones.
  FileDigest weights(const std::string& folder) const;
  /// Digests of what a model is made of that was loaded from a folder, by file name, "weights", and
  /// "adapters", where it has some.
  Json model_digests(const std::string& folder) const;

 private:
  DType dtype_;
  std::map<std::string, FileDigest> weights_;    // by folder
  std::map<std::string, std::string> adapters_;  // digests, by folder
  std::map<std::string, std::vector<FileDigest>> config_files_;
  Backend backend_;
};

struct TextTools {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat = {};  // absent: the folder has none

  const ChatTemplate* chat_template() const { return chat ? &*chat : nullptr; }
  /// What they were read from. The template is called chat_template.jinja wherever it lies, and stands here
  /// unless it is a part of another one.
  std::map<std::string, FileDigest> files() const;
};
/// The tools of a folder with a tokenizer.json. `template_file` empty: the folder's own template.
TextTools load_text_tools(const std::string& folder, const std::string& template_file = "");
/// Those of a model.
TextTools load_text_tools(const ModelSource& source);
/// Those that a config names.
TextTools load_text_tools(const Config& config);
std::string tokenizer_folder(const Config& config);
std::string tokenizer_folder(const ModelSource& source);
bool has_tokenizer(const std::string& folder);

}  // namespace temper

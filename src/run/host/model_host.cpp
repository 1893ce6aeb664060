#include "src/run/host/model_host.h"

#include <filesystem>

#include "src/core/digest/hash.h"
#include "src/core/log.h"
#include "src/io/checkpoint/master_reader.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/hf_import.h"
#include "src/io/hf/peft_folder.h"
#include "src/models/parameter_specs.h"
#include "src/nn/init.h"

namespace temper {
namespace {

/// Those of a checkpoint: the digest from those of their tensors.
FileDigest weights_of(const Manifest& manifest) {
  std::string all;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : manifest.tensors())
    if (name.starts_with("param/")) {
      all += fmt::format("{} {}\n", name, tensor.digest);
      for (const Manifest::Shard& shard : tensor.shards) bytes += shard.count * dtype_size(tensor.dtype);
    }
  return {manifest.path(), bytes, digest_hex(all.data(), std::ssize(all))};
}

std::string name_of(const FileDigest& file) { return std::filesystem::path(file.path).filename().string(); }

}  // namespace

void add_adapters(ModelSource& source, const std::string& folder) {
  source.adapters = read_adapter_config(folder, adapter_modules(read_model_facts(source.folder)));
  source.adapter_folder = folder;
}

ModelSource first_weights(const Config& config, const RunPlan& plan) {
  return {.folder = config.model.path,
          .context_tokens = plan.lengths.context,
          .random = config.model.init == "random",
          .seed = config.run.seed,
          .digest = config.model.digest,
          .frozen = plan.frozen,
          .adapters = plan.adapters,
          .adapter_folder = config.lora.path,
          .allow_unused = config.model.allow_unused};
}

namespace {

/// Says which tensors of the folder the model does not have.
void tell_unused(const ModelFolder& folder, const ModelConfig& config) {
  const std::vector<std::string> left_over = check_weights(folder, config, parameter_specs(config));
  if (!left_over.empty())
    log::info("tensors of {} are not used ({}; the first is {})", folder.path(), left_over.size(),
              left_over.front());
  for (const std::string& prefix : config.kept_tensors)
    if (const int64_t count = folder.count_tensors(prefix); count > 0)
      log::info("{} tensors {}* of {} are kept for exports, not read and not trained", count, prefix,
                folder.path());
}

}  // namespace

std::unique_ptr<Model> ModelHost::load(const ModelSource& source, ModelOptions options, Comm* ranks) {
  // A checkpoint of adapters has nothing else.
  const bool imports = !source.random && (source.checkpoint.empty() || source.adapters.on());
  ModelFolder folder = ModelFolder::open(
      source.folder, imports ? ModelFolder::Weights::required : ModelFolder::Weights::optional);
  for (const std::string& w : folder.warnings()) log::warn("{}", w);
  config_files_[source.folder] = folder.config_files();
  std::vector<std::string> warnings;
  const Json* generation = folder.generation_config() ? &*folder.generation_config() : nullptr;
  ModelConfig config = parse_model_config(folder.config(), generation, folder.config_path(), &warnings);
  config.frozen = source.frozen;
  config.adapters = source.adapters;
  check_supported(config, folder.config_path(), backend_.ctx().device);
  for (const std::string& w : warnings) log::debug("{}", w);
  if (imports) {
    folder.match_names(config);
    folder.allow_unused(source.allow_unused);
    tell_unused(folder, config);
  }
  options.dtype = dtype_;
  options.context_tokens = source.context_tokens.value_or(config.max_position_embeddings);
  options.device = ctx().device;
  auto model = std::make_unique<Model>(config, options);
  if (imports) {
    const FileDigest& read = weights_[source.folder] =
        import_weights(folder, config, model->parameters(), ranks);
    log::debug("read {} of {} bytes of the weights in {}", folder.bytes_read(), read.bytes, source.folder);
  } else if (source.checkpoint.empty()) {
    random_init(model->parameters(), config, source.seed, ctx().threads);
  }
  if (!source.checkpoint.empty())
    load_weights(Manifest::read(source.checkpoint), model->parameters());
  else if (!source.adapter_folder.empty())
    import_adapters(source.adapter_folder, model->parameters());
  else if (config.adapters.on())
    adapter_init(model->parameters(), config, source.seed, ctx().threads);
  if (const std::string digest = weights(source.folder).digest;
      !source.digest.empty() && digest != source.digest)
    fail(Exit::data, {.what = "these are other weights than those that were asked for",
                      .where = fmt::format("{}, {}", source.digest_from, source.folder),
                      .why = fmt::format("the weights have the digest {}, {} says {}", digest,
                                         source.digest_from, source.digest),
                      .fix = source.adapters.on() && !source.checkpoint.empty()
                                 ? "name the folder that the adapters were trained on"
                                 : "put the right weights there, or set model.digest to theirs (\"\": any)"});
  if (!source.checkpoint.empty()) {
    FileDigest loaded = weights_of(Manifest::read(source.checkpoint));
    if (imports)
      adapters_[source.folder] = loaded.digest;
    else
      weights_[source.folder] = std::move(loaded);
  } else if (!source.adapter_folder.empty()) {
    adapters_[source.folder] = digest_of_file(find_in_folder(source.adapter_folder, kAdapterModel)).digest;
  }
  return model;
}

FileDigest ModelHost::weights(const std::string& folder) const {
  const auto found = weights_.find(folder);
  return found == weights_.end() ? FileDigest{} : found->second;
}

Json ModelHost::model_digests(const std::string& folder) const {
  Json digests = Json::object();
  if (const auto read = config_files_.find(folder); read != config_files_.end())
    for (const FileDigest& file : read->second) digests[name_of(file)] = file.digest;
  digests["weights"] = weights(folder).digest;
  if (const auto adapters = adapters_.find(folder); adapters != adapters_.end())
    digests["adapters"] = adapters->second;
  return digests;
}

std::string tokenizer_folder(const Config& config) {
  return config.tokenizer.path.value_or(config.model.path);
}

std::string tokenizer_folder(const ModelSource& source) {
  return source.tokenizer.folder.empty() ? source.folder : source.tokenizer.folder;
}

bool has_tokenizer(const std::string& folder) { return !find_in_folder(folder, "tokenizer.json").empty(); }

std::map<std::string, FileDigest> TextTools::files() const {
  std::map<std::string, FileDigest> files;
  if (!tokenizer) return files;
  for (const FileDigest& file : tokenizer->files()) files[name_of(file)] = file;
  const bool apart = chat && path_exists(chat->digest().path);  // else: "FILE: chat_template"
  if (apart) files["chat_template.jinja"] = chat->digest();
  return files;
}

TextTools load_text_tools(const std::string& folder, const std::string& template_file) {
  constexpr int64_t kMaxTemplate = int64_t{1} << 20;
  TextTools text{std::make_unique<Tokenizer>(Tokenizer::load(folder))};
  text.chat = template_file.empty() ? ChatTemplate::load(folder)
                                    : ChatTemplate(read_file(template_file, kMaxTemplate), template_file);
  return text;
}

TextTools load_text_tools(const ModelSource& source) {
  return load_text_tools(tokenizer_folder(source), source.tokenizer.chat_template);
}

TextTools load_text_tools(const Config& config) {
  return load_text_tools(tokenizer_folder(config), config.tokenizer.chat_template.value_or(""));
}

}  // namespace temper

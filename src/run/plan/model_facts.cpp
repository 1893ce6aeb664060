#include "src/run/plan/model_facts.h"

#include <filesystem>

#include "src/config/config.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/io/hf/hf_config.h"
#include "src/io/hf/model_folder.h"
#include "src/io/hf/peft_folder.h"
#include "src/models/model.h"
#include "src/models/parameter_specs.h"

namespace temper {

int64_t num_parameters(const ModelConfig& config) {
  int64_t n = 0;
  for (const ParamSpec& spec : parameter_specs(config)) n += spec.size();
  return n;
}

namespace {

ModelConfig supported_facts(const Json& json, const std::string& path, const Json* generation) {
  ModelConfig config = parse_model_config(json, generation, path);
  check_supported(config, path);
  return config;
}

}  // namespace

ModelConfig read_model_facts(const std::string& model_path, std::vector<FileDigest>* files) {
  refuse_run_folder(model_path);
  const std::string path = find_in_folder(model_path, "config.json");
  if (path.empty())
    fail(Exit::data, {.what = "no model",
                      .where = model_path,
                      .why = "it has no config.json",
                      .fix = "set model.path to a Hugging Face folder"});
  const std::optional<Json> config = read_config_file(model_path, "config.json", files),
                            generation = read_config_file(model_path, "generation_config.json", files);
  return supported_facts(config.value(), path, generation ? &*generation : nullptr);
}

ModelConfig read_config_facts(const std::string& config_json) {
  return supported_facts(read_json_file(config_json, kConfigLimits), config_json, nullptr);
}

std::string find_published_config(const std::string& model_path, const std::string& config_file) {
  namespace fs = std::filesystem;
  for (fs::path rest = model_path; !rest.empty(); rest = rest.parent_path()) {
    const std::string name = rest.filename().string();
    if (!name.empty() && name != "." && name != "..")
      for (const fs::path& folder : {fs::path(config_file).parent_path(), fs::path("conf")}) {
        const std::string path = (folder / "models" / (name + ".json")).string();
        if (path_exists(path)) return path;
      }
    if (rest == rest.parent_path()) break;
  }
  return "";
}

RunModels read_run_models(const Config& config) {
  std::vector<FileDigest> files;
  RunModels models(read_model_facts(config.model.path, &files));
  models.files["model.path"] = std::move(files);
  if (const std::string& path = config.lora.path; !path.empty()) {
    std::vector<FileDigest>& read = models.files["lora.path"];
    models.adapters = read_adapter_config(path, adapter_modules(models.policy), &read);
    if (const std::string weights = find_in_folder(path, kAdapterModel); !weights.empty())
      read.push_back(digest_of_file(weights));
  }
  for (const RoleTraits& role : config.roles.rows())
    if (const auto& path = config.roles.of(role.name).path)
      models.own.emplace(role.name,
                         read_model_facts(*path, &models.files[fmt::format("roles.{}.path", role.name)]));
  return models;
}

}  // namespace temper

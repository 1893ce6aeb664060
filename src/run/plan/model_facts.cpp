#include "src/run/plan/model_facts.h"

#include <filesystem>

#include "src/config/config.h"
#include "src/core/check.h"
#include "src/core/file.h"
#include "src/io/hf_config.h"
#include "src/io/model_folder.h"
#include "src/models/model.h"
#include "src/models/parameter_specs.h"

namespace temper {

int64_t num_parameters(const ModelConfig& config) {
  int64_t n = 0;
  for (const ParamSpec& spec : parameter_specs(config)) n += spec.size();
  return n;
}

namespace {

ModelConfig supported_facts(const std::string& path, const Json* generation) {
  ModelConfig config = parse_model_config(read_json_file(path, kConfigLimits), generation, path);
  check_supported(config, path);
  return config;
}

}  // namespace

ModelConfig read_model_facts(const std::string& model_path) {
  refuse_run_folder(model_path);
  const std::string path = find_in_folder(model_path, "config.json");
  if (path.empty())
    fail(Exit::data, {.what = "no model",
                      .where = model_path,
                      .why = "it has no config.json",
                      .fix = "set model.path to a Hugging Face folder"});
  std::optional<Json> generation;
  if (const std::string other = find_in_folder(model_path, "generation_config.json"); !other.empty())
    generation = read_json_file(other, kConfigLimits);
  return supported_facts(path, generation ? &*generation : nullptr);
}

ModelConfig read_config_facts(const std::string& config_json) {
  return supported_facts(config_json, nullptr);
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
  RunModels models(read_model_facts(config.model.path));
  for (const RoleTraits& role : config.roles.rows())
    if (const auto& path = config.roles.of(role.name).path)
      models.own.emplace(role.name, read_model_facts(*path));
  return models;
}

}  // namespace temper

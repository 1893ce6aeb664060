#pragma once
// The models that a plan is for, from their config.json and generation_config.json alone.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/core/digest/file_digest.h"
#include "src/nn/model_config.h"
#include "src/run/plan/layout/role_plan.h"

namespace temper {

/// The shapes of a run's models.
struct RunModels {
  RunModels(ModelConfig of_policy) : policy(std::move(of_policy)) {}
  /// The model of a role: its own, where its section names a path.
  const ModelConfig& of(std::string_view role) const {
    const auto found = own.find(role);
    return found == own.end() ? policy : found->second;
  }
  const ModelConfig& of(const RolePlan& role) const { return of(role.name()); }
  /// What a rank holds for the role.
  const ModelConfig& held_for(const RolePlan& role) const {
    const bool first = base && !role.traits->of_policy && !own.contains(role.name());
    return first ? *base : of(role);
  }

  ModelConfig policy;
  AdapterConfig adapters = {};           // of lora.path
  std::optional<ModelConfig> base = {};  // what the policy began with, where adapters are trained
  std::map<std::string, ModelConfig, std::less<>> own = {};  // by role
  /// What was read of their folders, by the key of the config that names one.
  std::map<std::string, std::vector<FileDigest>> files = {};
};

int64_t num_parameters(const ModelConfig& config);

/// The shape of a model folder; Exit::data where it has no config.json, and where no kernel can run the
/// shape: not even those of the CPU, for those of a GPU the plan says it. `files`: gets what was read.
ModelConfig read_model_facts(const std::string& model_path, std::vector<FileDigest>* files = nullptr);
/// Those of a config: of model.path, and of each path that a role's section names.
RunModels read_run_models(const Config& config);

/// The same of a config.json alone.
ModelConfig read_config_facts(const std::string& config_json);

/// The config.json of a model that is not here, as models/NAME.json beside `config_file` or in conf/: NAME is
/// the last part of the model's path that has one ("Qwen3-0.6B", "demo" of runs/demo/model). Empty: none has.
std::string find_published_config(const std::string& model_path, const std::string& config_file);

}  // namespace temper

#pragma once
// Folders of low-rank adapters as the PEFT library writes them: adapter_config.json and
// adapter_model.safetensors, whose tensors are called base_model.model. and a Hugging Face module, then
// .lora_A.weight [rank, in] and .lora_B.weight [out, rank]. Everything in them is untrusted, as in a model
// folder (io/hf/model_folder.h). Read are plain adapters of linear layers, of one rank and scale; others are
// refused by what they are.

#include <set>
#include <string>
#include <vector>

#include "src/io/hf/hf_export.h"
#include "src/nn/adapter_config.h"

namespace temper {

inline constexpr const char *kAdapterConfig = "adapter_config.json",
                            *kAdapterModel = "adapter_model.safetensors";

/// What adapter_config.json says; Exit::data for what cannot be read. `modules`: those of the model that
/// adapters can be of. `files` gets what was read.
AdapterConfig read_adapter_config(const std::string& folder, const std::set<std::string>& modules,
                                  std::vector<FileDigest>* files = nullptr);

/// The same of its text, which is at `where`.
AdapterConfig parse_adapter_config(const Json& json, const std::string& where,
                                   const std::set<std::string>& modules);
/// What PEFT reads; `base`: where the model is, as others look for it.
Json adapter_config_json(const AdapterConfig& config, const std::string& base);

/// The values of the adapters of `store`, which are all of the folder; Exit::data for another shape, a
/// missing or unknown tensor, or a number that is not finite.
void import_adapters(const std::string& folder, ParameterStore& store);

/// A new folder `out` with the adapters among `specs`.
struct PeftExport {
  AdapterConfig config;
  std::string base;
  DType dtype = DType::f32;
};
void export_adapters(const std::vector<ParamSpec>& specs, const ElementReader& read, const std::string& out,
                     const PeftExport& options);

}  // namespace temper

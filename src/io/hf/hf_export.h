#pragma once
// ParameterStore or checkpoint -> Hugging Face folder. The source folder gives names, order, element types,
// config keys, tokenizer files and tensors that no parameter holds; values come through a callback in
// windows of at most 16 MiB, so that neither side needs the whole model in memory. Untouched weights of the
// source's type come out byte for byte.

#include <functional>
#include <string>
#include <vector>

#include "src/core/tensor.h"
#include "src/io/hf/model_folder.h"
#include "src/nn/model_config.h"
#include "src/nn/parameter.h"

namespace temper {

struct ExportOptions {
  std::string dtype = "auto";  // auto (each tensor as in the source), fp32, bf16, fp16, fp64
  int64_t shard_bytes = 5'000'000'000;
  std::vector<std::string> allow_unused = {};  // ModelFolder::allow_unused, of the source
  TokenizerPlace tokenizer = {};
};

/// Fills `destination` ([count], fp32 or fp64) with elements [first, first + count) of a parameter.
using ElementReader =
    std::function<void(const ParamSpec& spec, int64_t first, int64_t count, const Tensor& destination)>;
using SpecsFunction = std::function<std::vector<ParamSpec>(const ModelConfig& config)>;

/// The files of the source are kept as shards while each fits into shard_bytes; else tensors are filled in
/// the source's order. Fused experts come out a tensor each, but for those of hybrid models, which stay
/// fused; what is seen apart (joined_tensors.h) is joined again. A source without weights (model.init =
/// "random") is fine: then order and names are the specs'.
void export_model(const std::string& source_folder, const std::vector<ParamSpec>& specs,
                  const ElementReader& read, const std::string& out, const ExportOptions& options);

/// Reads from a store in the memory of any device, on which no lane has work. The store must outlive the
/// reader.
ElementReader store_reader(const ParameterStore& store);

struct InitOptions {
  uint64_t seed = 0;
  std::string dtype = "auto";         // the config's, or fp32
  std::string tokenizer_folder = {};  // unless empty, tokenizer and generation files are copied from it
  int threads = 1;                    // any number gives the same weights
};

/// Verb init: a folder with random weights from a config.json.
void init_model_folder(const std::string& config_json_path, const std::string& out,
                       const SpecsFunction& specs_of, const InitOptions& options);

}  // namespace temper

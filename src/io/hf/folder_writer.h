#pragma once
// Writes a Hugging Face model folder so that it is there completely or not at all: everything goes into a new
// `<out>.tmp.*`, synced file by file with the index last, and one rename makes it `<out>`. Of several writers
// one wins. What killed ones have left is removed.

#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/io/hf/model_folder.h"
#include "src/io/hf/safetensors.h"

namespace temper {

struct FolderPlan {
  std::vector<std::vector<TensorToWrite>> shards;  // one weight file each; none empty
  int64_t total_parameters = 0;                    // for the index
  Json config;
  std::vector<Companion> companions = {};  // files that are copied
  std::string weights_name = "model.safetensors", config_name = "config.json";  // the first: of a single file
};

/// Refused with Error(Exit::usage) if `out` exists and is not an empty folder, with Exit::busy if another
/// writer has made it meanwhile.
void write_model_folder(const std::string& out, const FolderPlan& plan);

/// Fills shards in order up to `shard_bytes` of tensor data; a larger tensor gets a file of its own.
std::vector<std::vector<TensorToWrite>> split_shards(std::vector<TensorToWrite> tensors, int64_t shard_bytes);

}  // namespace temper

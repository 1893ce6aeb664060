#pragma once
// Tensors that files hold joined and that are seen apart. Each of the joined one's rows, block by block, is a
// row of one of the others; in all of them rows are equally wide.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/io/hf/safetensors.h"
#include "src/nn/model_config.h"

namespace temper {

/// Rows of a tensor that is seen.
struct RowBlock {
  std::string tensor;
  int64_t first = 0, rows = 0;
};

struct JoinedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<RowBlock> blocks;
};

/// The first products of gated delta nets as Qwen3-Next stores them (Family::grouped_inputs): in in_proj_qkvz
/// each key head has its rows of q, of k, and those of v and z of its value heads; in in_proj_ba those of b
/// and a. They are seen as Qwen3.5 has them: in_proj_qkv, in_proj_z, in_proj_b, in_proj_a.
std::vector<JoinedTensor> grouped_inputs(const ModelConfig& config);

struct ByteRun {
  int64_t begin = 0, bytes = 0;  // of a file
};

/// Puts what is seen in the place of what is stored. Returns where the bytes of each tensor lie, in its
/// order. Exit::data for a joined tensor that is missing or of another shape or type, and for one that is
/// there both ways.
std::map<std::string, std::vector<ByteRun>> split_joined(std::map<std::string, TensorInfo>& tensors,
                                                         const std::vector<JoinedTensor>& joined,
                                                         const std::string& folder);

}  // namespace temper

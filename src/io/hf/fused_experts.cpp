#include "src/io/hf/fused_experts.h"

#include "src/core/check.h"
#include "src/io/elements.h"
#include "src/io/json_members.h"

namespace temper {
namespace {

using Tensors = std::map<std::string, TensorInfo>;

/// A fused tensor, and what it holds of each expert.
struct Fused {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<const char*> tensors;
};

/// The fused tensors of a layer; how those of its single experts and its router begin.
struct Layer {
  std::string fused, single;
  Fused gate_up, down;
};

Layer layer_of(const ModelConfig& c, int64_t number) {
  const std::string hf = fmt::format("{}layers.{}.", c.tensor_prefix, number);
  const bool mixtral = c.moe.names == ExpertNames::block_sparse_moe;
  Layer layer{hf + "mlp.", hf + (mixtral ? "block_sparse_moe." : "mlp."), {}, {}};
  const int64_t experts = c.moe.num_experts, width = c.hidden_size, size = c.moe.expert_size;
  layer.gate_up = {layer.fused + "experts.gate_up_proj",
                   {experts, 2 * size, width},
                   mixtral ? std::vector{"w1", "w3"} : std::vector{"gate_proj", "up_proj"}};
  layer.down = {layer.fused + "experts.down_proj", {experts, width, size}, {mixtral ? "w2" : "down_proj"}};
  return layer;
}

void check_fused(const TensorInfo& info, const Fused& fused, const std::string& folder) {
  const std::string where = join_path(folder, info.file);
  if (!float_dtype(info.dtype))
    fail(Exit::data, {.what = "tensor " + quote_name(fused.name) + " has an unsupported type",
                      .where = where,
                      .why = info.dtype + "; weights are BF16, F16, F32 or F64",
                      .fix = "use an unquantised release of the model"});
  if (info.shape == fused.shape) return;
  const std::vector<int64_t> transposed = {fused.shape[0], fused.shape[2], fused.shape[1]};
  const std::string turned =
      info.shape == transposed ? "; experts stored as inputs x outputs are not read" : "";
  fail(Exit::data,
       {.what = "tensor " + quote_name(fused.name) + " has the wrong shape",
        .where = where,
        .why = fmt::format("it is {}, config.json asks for {} (experts, outputs, inputs){}",
                           shape_text(info.shape), shape_text(fused.shape), turned),
        .fix = "fetch a release of the model with a tensor per expert, or the config.json of these weights"});
}

void add(Tensors& tensors, const std::string& name, const TensorInfo& info, const std::string& fused,
         const std::string& folder) {
  const auto [at, fresh] = tensors.emplace(name, info);
  if (fresh) return;
  fail(Exit::data, {.what = "tensor " + quote_name(name) + " is there twice",
                    .where = join_path(folder, at->second.file),
                    .why = fmt::format("{} of {} holds it too", quote_name(fused), info.file),
                    .fix = "keep the fused tensors or those per expert, and remove the others"});
}

JoinedTensor split(Tensors& tensors, const Fused& fused, const std::string& experts,
                   const std::string& folder) {
  JoinedTensor joined{fused.name, fused.shape, {}};
  const TensorInfo whole = tensors.at(fused.name);
  const int64_t number = fused.shape[0], kinds = std::ssize(fused.tensors);
  TensorInfo info{whole.dtype, {fused.shape[1] / kinds, fused.shape[2]}, whole.begin, 0, whole.file};
  const int64_t bytes = (whole.end - whole.begin) / (number * kinds);
  tensors.erase(fused.name);
  for (int64_t e = 0; e < number; ++e)
    for (const char* tensor : fused.tensors) {
      info.end = info.begin + bytes;
      joined.blocks.push_back({fmt::format("{}{}.{}.weight", experts, e, tensor), 0, info.shape[0]});
      add(tensors, joined.blocks.back().tensor, info, fused.name, folder);
      info.begin = info.end;
    }
  return joined;
}

/// Both are there, or none.
bool is_fused(const Tensors& tensors, const Layer& layer, const std::string& folder) {
  const auto gate_up = tensors.find(layer.gate_up.name), down = tensors.find(layer.down.name);
  if (gate_up == tensors.end() && down == tensors.end()) return false;
  const bool both = gate_up != tensors.end() && down != tensors.end();
  if (both) return true;
  const bool no_down = down == tensors.end();
  fail(Exit::data,
       {.what = "tensor " + quote_name(no_down ? layer.down.name : layer.gate_up.name) + " is missing",
        .where = folder,
        .why = fmt::format("{} is there; experts are fused in both matrices, or in none",
                           quote_name(no_down ? layer.gate_up.name : layer.down.name)),
        .fix = "fetch the weights again"});
}

}  // namespace

FusedExperts split_fused_experts(Tensors& tensors, const ModelConfig& config, const std::string& folder) {
  FusedExperts all;
  for (const int64_t number : config.moe.layers) {
    const Layer layer = layer_of(config, number);
    if (!is_fused(tensors, layer, folder)) continue;
    // Where 2 Fm = H the shape of gate_up_proj does not tell which way its experts lie; that of down_proj
    // does.
    for (const Fused* fused : {&layer.down, &layer.gate_up}) {
      const TensorInfo& info = tensors.at(fused->name);
      check_fused(info, *fused, folder);
      if (!config.is_hybrid) all.files.insert(info.file);
      JoinedTensor joined = split(tensors, *fused, layer.single + "experts.", folder);
      if (config.is_hybrid) all.joined.push_back(std::move(joined));
    }
    const std::string router = layer.fused + "gate.weight";
    if (auto node = tensors.extract(router); !node.empty())
      add(tensors, layer.single + "gate.weight", node.mapped(), router, folder);
  }
  return all;
}

}  // namespace temper

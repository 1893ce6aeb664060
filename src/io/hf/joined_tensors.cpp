#include "src/io/hf/joined_tensors.h"

#include "src/core/check.h"
#include "src/io/elements.h"
#include "src/io/json_members.h"
#include "src/nn/families.h"

namespace temper {
namespace {

void check_stored(const std::map<std::string, TensorInfo>& tensors, const JoinedTensor& joined,
                  const std::string& folder) {
  const auto at = tensors.find(joined.name);
  if (at == tensors.end())
    fail(Exit::data, {.what = "tensor " + quote_name(joined.name) + " is missing",
                      .where = folder,
                      .why = "config.json asks for it, with shape " + shape_text(joined.shape),
                      .fix = "fetch the weights again, or correct config.json"});
  const TensorInfo& info = at->second;
  if (info.shape != joined.shape)
    fail(Exit::data, {.what = "tensor " + quote_name(joined.name) + " has the wrong shape",
                      .where = join_path(folder, info.file),
                      .why = fmt::format("it is {}, config.json asks for {}", shape_text(info.shape),
                                         shape_text(joined.shape)),
                      .fix = "weights and config.json belong to different models; fetch both again"});
  if (!float_dtype(info.dtype))
    fail(Exit::data, {.what = "tensor " + quote_name(joined.name) + " has an unsupported type",
                      .where = join_path(folder, info.file),
                      .why = info.dtype + "; weights are BF16, F16, F32 or F64",
                      .fix = "use an unquantised release of the model"});
}

/// For each key head `rows` of every part, which are rows of a tensor of their own or follow those of a
/// part before in one.
struct Part {
  const char* tensor;
  int64_t before, rows;
};

JoinedTensor by_key_head(const std::string& name, const std::string& net, const ModelConfig& c,
                         const std::vector<Part>& parts) {
  JoinedTensor joined{net + name, {0, c.hidden_size}, {}};
  for (int64_t head = 0; head < c.delta.key_heads; ++head)
    for (const Part& part : parts) {
      joined.blocks.push_back({net + part.tensor, part.before + head * part.rows, part.rows});
      joined.shape[0] += part.rows;
    }
  return joined;
}

}  // namespace

std::vector<JoinedTensor> grouped_inputs(const ModelConfig& config) {
  const Family* const family = find_family(config.family);
  if (!family || !family->grouped_inputs) return {};
  const DeltaConfig& d = config.delta;
  std::vector<JoinedTensor> all;
  for (const int64_t layer : d.layers) {
    const std::string net = fmt::format("{}layers.{}.linear_attn.", config.tensor_prefix, layer);
    const int64_t keys = d.key_heads * d.key_dim, ratio = d.value_heads / d.key_heads,
                  values = ratio * d.value_dim;
    const char *const qkv = "in_proj_qkv.weight", *const z = "in_proj_z.weight";
    all.push_back(
        by_key_head("in_proj_qkvz.weight", net, config,
                    {{qkv, 0, d.key_dim}, {qkv, keys, d.key_dim}, {qkv, 2 * keys, values}, {z, 0, values}}));
    all.push_back(by_key_head("in_proj_ba.weight", net, config,
                              {{"in_proj_b.weight", 0, ratio}, {"in_proj_a.weight", 0, ratio}}));
  }
  return all;
}

std::map<std::string, std::vector<ByteRun>> split_joined(std::map<std::string, TensorInfo>& tensors,
                                                         const std::vector<JoinedTensor>& joined,
                                                         const std::string& folder) {
  std::map<std::string, std::vector<ByteRun>> runs;
  for (const JoinedTensor& whole : joined) {
    check_stored(tensors, whole, folder);
    const TensorInfo stored = tensors.extract(whole.name).mapped();
    const int64_t row = (stored.end - stored.begin) / whole.shape[0];
    std::map<std::string, std::map<int64_t, ByteRun>> parts;
    std::map<std::string, int64_t> rows;
    int64_t begin = stored.begin;
    for (const RowBlock& block : whole.blocks) {
      parts[block.tensor][block.first] = {begin, block.rows * row};
      rows[block.tensor] += block.rows;
      begin += block.rows * row;
    }
    for (const auto& [name, of_rows] : parts) {
      const int64_t count = rows.at(name);
      const TensorInfo seen{
          stored.dtype, {count, whole.shape[1]}, stored.begin, stored.begin + count * row, stored.file};
      if (!tensors.emplace(name, seen).second)
        fail(Exit::data, {.what = "tensor " + quote_name(name) + " is there twice",
                          .where = join_path(folder, tensors.at(name).file),
                          .why = fmt::format("{} of {} holds it too", quote_name(whole.name), stored.file),
                          .fix = "keep the tensors that config.json asks for, and remove the others"});
      for (const auto& [first, run] : of_rows) runs[name].push_back(run);
    }
  }
  return runs;
}

}  // namespace temper

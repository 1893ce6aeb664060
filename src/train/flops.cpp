#include "src/train/flops.h"

#include "src/models/parameter_specs.h"
#include "src/train/microbatch.h"

namespace temper {

namespace {

/// Parameters of a layer's products that a token meets, without those of its attention to other tokens.
int64_t layer_weights(const ModelConfig& c, int64_t layer) {
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim, D = c.hidden_size;
  const DeltaConfig& d = c.delta;
  const int64_t keys = d.key_heads * d.key_dim, values = d.value_heads * d.value_dim;
  // A state is read twice and written to once by each token, as a product reads a weight once.
  const int64_t delta_net = D * (2 * keys + 3 * values + 2 * d.value_heads) + 3 * values * d.key_dim;
  const int64_t attention = D * (q + 2 * kv) + q * D + (c.is_hybrid ? D * q : 0);
  const int64_t mixer = d.layers.contains(layer) ? delta_net : attention;
  if (!c.moe.layers.contains(layer)) return mixer + 3 * D * c.intermediate_size;
  const int64_t units = c.moe.experts_per_token * c.moe.expert_size + c.moe.shared_size;
  return mixer + 3 * D * units + D * c.moe.num_logits();
}

}  // namespace

double training_flops(const ModelConfig& c, std::span<const Trajectory* const> all) {
  const int64_t q = c.num_heads * c.head_dim;
  int64_t all_weights = c.vocab_size * c.hidden_size;
  for (int64_t layer = 0; layer < c.num_layers; ++layer) all_weights += layer_weights(c, layer);
  int64_t frozen = 0;  // of these
  const std::vector<ParamSpec> specs = parameter_specs(c);
  for (const ParamSpec& spec : specs)
    if (spec.whose == Whose::adapter) all_weights += spec.size();
  const auto weights = static_cast<double>(all_weights);
  for (const ParamSpec& spec : specs)
    if (!spec.trained && spec.shape.size() == 2 && spec.row_shape.empty() &&  // of a product
        (spec.name != "embed" || c.tie_word_embeddings))
      frozen += active_size(c, spec);
  double flops = 0;
  for (const Trajectory* t : all) {
    const auto tokens = static_cast<double>(packed_length(*t));
    flops += 6 * tokens * (weights + static_cast<double>(c.num_attention_layers() * q) * tokens);
    flops -= 2 * tokens * static_cast<double>(frozen);
  }
  return flops;
}

}  // namespace temper

#include "src/train/flops.h"

#include "src/models/parameter_specs.h"
#include "src/train/microbatch.h"

namespace temper {

double training_flops(const ModelConfig& c, std::span<const Trajectory* const> all) {
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim, D = c.hidden_size;
  const int64_t layer = D * (q + 2 * kv) + q * D + 3 * D * c.intermediate_size;
  const auto weights = static_cast<double>(c.num_layers * layer + c.vocab_size * D);
  int64_t frozen = 0;  // of these
  for (const ParamSpec& spec : parameter_specs(c))
    if (!spec.trained && spec.shape.size() == 2 && (spec.name != "embed" || c.tie_word_embeddings))
      frozen += spec.size();
  double flops = 0;
  for (const Trajectory* t : all) {
    const auto tokens = static_cast<double>(packed_length(*t));
    flops += 6 * tokens * (weights + static_cast<double>(c.num_layers * q) * tokens);
    flops -= 2 * tokens * static_cast<double>(frozen);
  }
  return flops;
}

}  // namespace temper

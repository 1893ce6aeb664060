#include "src/run/plan/layout/head_rules.h"

#include "src/core/check.h"
#include "src/nn/attention.h"
#include "src/nn/hybrid/delta_net.h"

namespace temper {
namespace {

/// Neighbours have the same head where there are fewer of them than ranks.
std::string shared_heads_defect(const std::string& what, int64_t heads, int64_t ranks) {
  if (heads % ranks == 0 || ranks % heads == 0) return "";
  return fmt::format("{} {} neither divide by {}, nor it by them", heads, what, ranks);
}

/// `whose`: " of a tp rank" where they are not all.
std::string delta_heads_defect(const DeltaShape& heads, const std::string& whose, int64_t ranks) {
  if (heads.value_heads % ranks != 0)
    return fmt::format("{} value heads of gated delta nets{} do not divide by {}", heads.value_heads, whose,
                       ranks);
  return shared_heads_defect("key heads of gated delta nets" + whose, heads.key_heads, ranks);
}

}  // namespace

std::string tp_heads_defect(const ModelConfig& m, int64_t tp) {
  std::string why = shared_heads_defect("heads of keys and values", m.num_kv_heads, tp);
  return why.empty() && !m.delta.layers.empty() ? delta_heads_defect(delta_shape(m.delta), "", tp) : why;
}

std::string cp_heads_defect(const ModelConfig& m, int tp, int64_t cp) {
  const AttentionShape heads = attention_shape(m, tp);
  if (heads.q_heads % cp != 0)
    return fmt::format("{} attention heads{} do not divide by {}", heads.q_heads,
                       tp > 1 ? fmt::format(" of a tp rank ({} / {})", m.num_heads, tp) : "", cp);
  std::string why = shared_heads_defect("heads of keys and values of a tp rank", heads.kv_heads, cp);
  const bool has_delta_nets = !m.delta.layers.empty();
  return why.empty() && has_delta_nets ? delta_heads_defect(delta_shape(m.delta, tp), " of a tp rank", cp)
                                       : why;
}

}  // namespace temper

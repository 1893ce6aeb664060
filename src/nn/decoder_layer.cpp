#include "src/nn/decoder_layer.h"

namespace temper {
namespace {

/// What a layer of this kind saves.
AttentionSaved saved_of(const Attention&) { return {}; }
GatedAttentionSaved saved_of(const GatedAttention&) { return {}; }
DeltaNetSaved saved_of(const DeltaNet&) { return {}; }
MlpSaved saved_of(const Mlp&) { return {}; }
MoeSaved saved_of(const Moe&) { return {}; }

}  // namespace

void DecoderLayer::forward(Ctx& c, const Batch& b, const Residual& y, const Residual& x, const Tensor& sum,
                           LayerSaved* s, const Keep& keep) const {
  Arena& rest = keep.for_rest(c);
  const Tensor normed = rest.like(sum), normed2 = rest.like(sum);
  attn_norm_.forward_residual(c, normed, sum, x.stream, x.delta, s ? &s->attn_norm : nullptr, keep);
  const Tensor mixed = std::visit(
      [&](const auto& mixer) {
        auto* const saved = s ? &s->mixer.emplace<decltype(saved_of(mixer))>() : nullptr;
        return mixer.forward(c, b, normed, saved, keep);
      },
      mixer_);
  mlp_norm_.forward_residual(c, normed2, y.stream, sum, mixed, s ? &s->mlp_norm : nullptr, keep);
  std::visit(
      [&](const auto& layer) {
        auto* const saved = s ? &s->feed_forward.emplace<decltype(saved_of(layer))>() : nullptr;
        layer.forward_into(c, y.delta, normed2, saved, keep, b.stream());
      },
      feed_forward_);
}

void DecoderLayer::backward(Ctx& c, const Batch& b, Tensor dx, CTensor dy, const LayerSaved& s) const {
  const Tensor dmiddle = std::visit(
      [&](const auto& layer) {
        const auto& saved = std::get<decltype(saved_of(layer))>(s.feed_forward);
        const CTensor normed = saved.x.empty() ? mlp_norm_.again(c, s.mlp_norm) : saved.x;
        return layer.backward(c, dy, normed, saved, b.stream());
      },
      feed_forward_);
  mlp_norm_.backward_into(c, dmiddle, dmiddle, dy, s.mlp_norm);
  const Tensor dmixed = std::visit(
      [&](const auto& mixer) {
        const auto& saved = std::get<decltype(saved_of(mixer))>(s.mixer);
        const CTensor normed = saved.x.empty() ? attn_norm_.again(c, s.attn_norm) : saved.x;
        return mixer.backward(c, b, dmiddle, normed, saved);
      },
      mixer_);
  attn_norm_.backward_into(c, dx, dmixed, dmiddle, s.attn_norm);
}

void DecoderLayer::join(Ctx& c, bool backward) const {
  if (const Moe* const experts = std::get_if<Moe>(&feed_forward_)) experts->join(c, backward);
}

}  // namespace temper

#include "src/train/routers/aux_losses.h"

#include <algorithm>

#include "src/core/check.h"

namespace temper {
namespace {

bool has(const MoeSection& config, std::string_view name) {
  return std::find(config.aux_loss.begin(), config.aux_loss.end(), name) != config.aux_loss.end();
}

/// A copy of numbers of the host.
Tensor copied(Ctx& c, Arena& memory, const std::vector<double>& values, DType dtype,
              std::initializer_list<int64_t> shape) {
  const Tensor t = memory.make(shape, dtype);
  const std::vector<float> narrow(values.begin(), values.end());
  const void* from = dtype == DType::f64 ? static_cast<const void*>(values.data()) : narrow.data();
  if (!values.empty()) device::copy_to_device(c.lane, t.raw(), from, t.bytes());
  return t;
}

}  // namespace

AuxLossOptions AuxLossOptions::of(const MoeSection& config) {
  AuxLossOptions o;
  o.sequence = config.aux_coef > 0 && has(config, "sequence");
  o.global = config.aux_coef > 0 && has(config, "global");
  if (o.counts()) o.coef = config.aux_coef;
  if (has(config, "z")) o.z_coef = config.z_coef;
  return o;
}

std::string AuxLossOptions::text() const {
  std::string text;
  const auto add = [&](bool on, const char* name, double coefficient) {
    if (on) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", name, coefficient);
  };
  add(sequence, "sequence", coef);
  add(global, "global", coef);
  add(z_coef > 0, "z", z_coef);
  return text.empty() ? "none" : text;
}

AuxLosses::AuxLosses(const AuxLossOptions& options, const Model& model)
    : options_(options), model_(model), experts_(model.config().moe.num_experts), memory_(model.device()) {
  if (options.any() && !model.config().moe.layers.empty())
    losses_ = memory_.make({2}, accumulate_dtype(model.dtype()));
}

void AuxLosses::begin(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& mine,
                      size_t passes, Comm& all) {
  if (losses_.empty()) return;
  device::fill(c.lane, losses_.raw(), 0, losses_.bytes());
  tokens_.clear();
  all_tokens_ = num_sequences_ = 0;
  for (const Trajectory* t : pass.all) {
    tokens_.push_back(packed_length(*t));
    all_tokens_ += static_cast<double>(tokens_.back());
    num_sequences_ += tokens_.back() > 0;
  }
  if (!options_.counts()) return;
  const int64_t layers = model_.config().num_layers;
  counts_.assign(static_cast<size_t>(layers * num_counted() * experts_), 0.0);
  count(c, pass, mine, passes);
  all.all_reduce_sum(counts_, "choices of routers, sum over trainer ranks");
  totals_.assign(static_cast<size_t>(layers * experts_), 0.0);
  for (int64_t layer = 0; layer < layers; ++layer)
    for (int64_t row = 0; row < num_counted(); ++row)
      for (int64_t e = 0; e < experts_; ++e)
        totals_[static_cast<size_t>(layer * experts_ + e)] +=
            counts_[place(layer, static_cast<size_t>(row)) + static_cast<size_t>(e)];
}

/// The choices of the own tokens.
void AuxLosses::count(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& mine,
                      size_t passes) {
  RouterNotes notes;
  const auto before = [&](Microbatch& mb, size_t index) {
    const size_t sequences = mine[index].size();
    notes = *mb.routers;
    notes.begins = begins_in(c, c.scratch, mb, sequences);
    notes.counts =
        c.scratch.make({model_.config().num_layers, notes.begins.dim(0) - 1, experts_}, DType::i32);
    device::fill(c.lane, notes.counts.raw(), 0, notes.counts.bytes());
    mb.routers = &notes;
  };
  const auto after = [&](const ModelPart& part, const Microbatch&, size_t index, const Tensor&) {
    const std::vector<int32_t> counts = to_host<int32_t>(c, notes.counts);
    auto from = counts.begin() + part.layers.begin * notes.counts.dim(1) * experts_;
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
      for (int64_t s = 0; s < notes.counts.dim(1); ++s) {
        auto to = counts_.begin() + static_cast<std::ptrdiff_t>(place(
                                        layer, static_cast<size_t>(mine[index][static_cast<size_t>(s)])));
        for (int64_t e = 0; e < experts_; ++e) *to++ += *from++;
      }
  };
  for_each_microbatch(c, pass, mine, passes, before, after);
}

/// Where the rows of each sequence begin among those that this rank has of a layer; of all at once, where
/// their choices are not counted apart.
Tensor AuxLosses::begins_in(Ctx& c, Arena& memory, const Microbatch& mb, size_t sequences) const {
  const FlatRange own = model_.splits().own_tokens(mb.stream());
  std::vector<int32_t> begins;
  for (size_t s = 0; s <= sequences; ++s)
    if (options_.sequence || s == 0 || s == sequences)
      begins.push_back(static_cast<int32_t>(
          std::clamp<int64_t>(mb.cu_seqlens[s] - mb.own.begin - own.begin, 0, own.size())));
  if (begins.size() == 1) begins.push_back(begins.front());
  const Tensor t = memory.make({std::ssize(begins)}, DType::i32);
  device::copy_to_device(c.lane, t.raw(), begins.data(), t.bytes());
  return t;
}

void AuxLosses::add_slopes(double* slopes, int64_t layer, size_t sequence) const {
  const auto& config = model_.config().moe;
  const double experts = static_cast<double>(experts_),
               chosen = static_cast<double>(config.experts_per_token),
               length = static_cast<double>(tokens_[sequence]), scale = options_.coef * experts / chosen;
  for (int64_t e = 0; e < experts_; ++e) {
    const auto at = static_cast<size_t>(e);
    if (options_.sequence && length > 0)
      slopes[e] += scale * counts_[place(layer, sequence) + at] / (length * length * num_sequences_);
    if (options_.global)
      slopes[e] += scale * totals_[static_cast<size_t>(layer * experts_) + at] / (all_tokens_ * all_tokens_);
  }
}

void AuxLosses::add_notes(Ctx& c, Arena& memory, RouterNotes& notes, const Microbatch& mb,
                          std::span<const int32_t> sequences) const {
  if (losses_.empty() || sequences.empty()) return;
  notes.begins = begins_in(c, memory, mb, sequences.size());
  const int64_t layers = model_.config().num_layers, stretches = notes.begins.dim(0) - 1;
  std::vector<double> slopes(static_cast<size_t>(layers * stretches * experts_));
  double* at = slopes.data();
  for (int64_t layer = 0; layer < layers; ++layer)
    for (int64_t s = 0; s < stretches; ++s, at += experts_)
      if (options_.counts() && model_.config().moe.layers.contains(layer))
        add_slopes(at, layer, static_cast<size_t>(sequences[static_cast<size_t>(s)]));
  notes.slopes = copied(c, memory, slopes, losses_.dtype, {layers, stretches, experts_});
  notes.z = all_tokens_ > 0 ? options_.z_coef / all_tokens_ : 0;
  notes.losses = losses_;
}

void AuxLosses::add_metrics(const Ctx& c, Comm& all, Metrics& metrics) const {
  if (losses_.empty() || counts_only(c.device)) return;
  std::vector<double> losses = to_host<double>(c, losses_);
  all.all_reduce_sum(losses, "losses of routers, sum over trainer ranks");
  if (options_.counts()) metrics["moe/aux_loss"] = losses[0];
  if (options_.z_coef > 0) metrics["moe/z_loss"] = losses[1];
}

}  // namespace temper

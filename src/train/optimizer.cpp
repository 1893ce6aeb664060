#include "src/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/ops/elementwise.h"
#include "src/ops/optimizer.h"

namespace temper {
namespace {

Tensor part(const Tensor& flat, int64_t begin, int64_t size) { return rows(flat, begin, begin + size); }

/// An fp32 master beside a bf16 weight.
bool rounds_to_weight(const UpdateRange& r) {
  return r.weight.dtype == DType::bf16 && r.master.dtype == DType::f32;
}

/// Host memory of a device: what a GPU works on over its link, or what is only counted.
Device host_of(Device device) { return counts_only(device) ? Device::meta : Device::cpu; }

}  // namespace

StateFormats state_formats(const OptimizerConfig& config, DType weights, Device device) {
  const DType wide = accumulate_dtype(weights);
  const bool remainder = config.master == "remainder" || (config.master == "auto" && like_gpu(device));
  return {.master = weights == DType::bf16 && remainder ? DType::u16 : wide,
          .moments = config.state == "bf16" && wide == DType::f32 ? DType::bf16 : wide};
}

std::vector<LogicalRange> logical_ranges(const OptimizerPiece& piece, int tp_rank) {
  const ParamSpec& spec = piece.parameter->spec;
  const int64_t width = spec.size() / spec.shape[0];
  std::vector<LogicalRange> ranges;
  for (const RowSpan& span : piece.parameter->spans) {
    const int64_t begin = std::max(piece.range.begin, span.own * width),
                  end = std::min(piece.range.end, (span.own + span.rows) * width);
    if (begin >= end) continue;
    const int64_t whole = begin + (span.whole - span.own) * width;
    const bool sums_over_tp = spec.shard == Shard::experts;  // no two ranks own the same of it
    const bool first = (span.first_rank == tp_rank || sums_over_tp) && !span.copy;
    LogicalRange* last = ranges.empty() ? nullptr : &ranges.back();
    if (last && last->first == first && last->whole + last->own.size() == whole)
      last->own.end = end - piece.range.begin;
    else
      ranges.push_back({{begin - piece.range.begin, end - piece.range.begin}, whole, first});
  }
  return ranges;
}

Optimizer::Optimizer(Ctx& c, ParameterStore& parameters, const OptimizerConfig& config, const SumRanks& over,
                     uint64_t seed, StatePlace place, int tp_rank)
    : parameters_(parameters),
      config_(config),
      seed_(seed),
      tp_rank_(tp_rank),
      formats_(state_formats(config, parameters.dtype(), parameters.device())),
      over_(over),
      memory_(place == StatePlace::host ? host_of(parameters.device()) : parameters.device(),
              MemoryUse::optimizer) {
  parameters.keep_own(c.lane);
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    std::vector<OptimizerPiece> own = pieces_of(unit);  // none of what another stage has
    if (own.empty()) continue;
    if (parameters.units()[unit].trained)
      add_range(c, own);
    else
      add_frozen(own);
  }
  if (memory_.device() != parameters.device()) memory_.pin();
  for (const UpdateRange& r : ranges_)
    if (rounds_to_weight(r)) widen(c, r.master, r.weight);
}

/// In this rank's shard of a unit, without state.
std::vector<OptimizerPiece> Optimizer::pieces_of(size_t unit) const {
  const FlatRange& all = parameters_.units()[unit].range;
  const Collectives& ranks = over_.of(parameters_.units()[unit]);
  const FlatRange share = shard_range(all.size(), ranks.rank(), ranks.size());
  std::vector<OptimizerPiece> pieces;
  for (Parameter& p : parameters_.list()) {
    if (p.unit != unit) continue;
    const int64_t at = p.offset - all.begin;
    const FlatRange piece{std::max(share.begin - at, int64_t{0}), std::min(share.end - at, p.value.size())};
    if (piece.size() > 0) pieces.push_back({&p, piece, {}, {}, {}, {}, {}});
  }
  return pieces;
}

/// Host memory is touched first by all threads: the state of a large model is tens of GB.
Tensor Optimizer::zeros(Ctx& c, int64_t size, DType dtype) {
  if (memory_.device() != Device::cpu) return memory_.zeros({size}, dtype);
  constexpr int64_t kGrain = int64_t{16} << 20;
  const Tensor t = memory_.make({size}, dtype);
  parallel_ranges(c.threads, t.bytes(), kGrain, [&](int64_t begin, int64_t end) {
    device::clear(Device::cpu, static_cast<char*>(t.raw()) + begin, end - begin);
  });
  return t;
}

/// Memory for the state of neighbours, and their views of it.
void Optimizer::add_range(Ctx& c, std::span<OptimizerPiece> run) {
  const auto begin_of = [](const OptimizerPiece& p) { return p.parameter->offset + p.range.begin; };
  const int64_t first = begin_of(run.front()), size = begin_of(run.back()) + run.back().range.size() - first;
  UpdateRange all{.first_element = first,
                  .weight = parameters_.own_values(first, size),
                  .master = {},
                  .m = zeros(c, size, formats_.moments),
                  .v = zeros(c, size, formats_.moments),
                  .grad = parameters_.grad_sums(first, size),
                  .decays = {}};
  // The remainder of a weight that no update rounded is zero.
  all.master = all.weight.dtype == DType::bf16 ? zeros(c, size, formats_.master) : all.weight;
  for (OptimizerPiece& piece : run) {
    const int64_t begin = begin_of(piece) - first, count = piece.range.size();
    piece.weight = part(all.weight, begin, count);
    piece.master = part(all.master, begin, count);
    piece.m = part(all.m, begin, count);
    piece.v = part(all.v, begin, count);
    piece.grad = rows(all.grad, begin, begin + count);
    if (piece.parameter->spec.decays()) all.decays.push_back({begin, begin + count});
    pieces_.push_back(piece);
  }
  ranges_.push_back(std::move(all));
}

void Optimizer::add_frozen(std::span<OptimizerPiece> run) {
  for (OptimizerPiece& piece : run) {
    piece.weight = parameters_.own_values(piece.parameter->offset + piece.range.begin, piece.range.size());
    frozen_.push_back(piece);
  }
}

double Optimizer::step(Ctx& c, Comm& all, double lr) {
  ArenaScope scope(c.scratch);
  const Tensor squares = c.scratch.make({1}, DType::f64);
  device::fill(c.lane, squares.raw(), 0, squares.bytes());
  for (const OptimizerPiece* piece : in_list_order())
    for (const LogicalRange& range : logical_ranges(*piece, tp_rank_))
      if (range.first) sum_of_squares(c, squares, rows(piece->grad, range.own.begin, range.own.end));
  std::vector<double> square = to_host<double>(c, squares);
  all.all_reduce_sum(square, "squared gradient norm, sum over all shards");
  const double norm = std::sqrt(square[0]);
  if (!std::isfinite(norm)) return norm;
  ++count_;
  AdamwStep update{.lr = lr,
                   .beta1 = config_.betas[0],
                   .beta2 = config_.betas[1],
                   .eps = config_.eps,
                   .weight_decay = config_.weight_decay,
                   .count = count_,
                   .seed = seed_};
  if (config_.grad_clip > 0) update.grad_scale = std::min(1.0, config_.grad_clip / (norm + 1e-6));
  for (const UpdateRange& r : ranges_) {
    update.first_element = r.first_element;
    adamw_step(c, r.weight, r.master, r.m, r.v, r.grad, r.decays, update);
  }
  if (!parameters_.split()) gather_weights(c, "new weights, copied from their dp owners", /*trained=*/true);
  return norm;
}

/// As parameters are listed, however they fall into units: the order of the norm's sum.
std::vector<const OptimizerPiece*> Optimizer::in_list_order() const {
  std::map<const Parameter*, const OptimizerPiece*> of;
  for (const OptimizerPiece& piece : pieces_) of[piece.parameter] = &piece;
  std::vector<const OptimizerPiece*> list;
  for (const Parameter& p : parameters_.list())
    if (const auto found = of.find(&p); found != of.end()) list.push_back(found->second);
  return list;
}

void Optimizer::gather_weights(Ctx& c, const char* what, bool trained) {
  for (const Unit& unit : parameters_.units()) {
    if (unit.range.size() == 0 || (trained && !unit.trained)) continue;
    parameters_.place_own(c.lane, unit);
    over_.of(unit).all_gather_shards(c, parameters_.values_of(unit), what);
  }
}

void Optimizer::restore(Ctx& c, int64_t count) {
  count_ = count;
  for (const UpdateRange& r : ranges_)
    if (rounds_to_weight(r)) round_master(c, r.weight, r.master);
  gather_weights(c, "restored weights, copied from their dp owners");
}

}  // namespace temper

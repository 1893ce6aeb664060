#include "src/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "src/ops/optimizer.h"

namespace temper {
namespace {

Tensor part(const Tensor& flat, int64_t begin, int64_t size) { return rows(flat, begin, begin + size); }

}  // namespace

Optimizer::Optimizer(ParameterStore& parameters, const OptimizerConfig& config, Collectives& dp)
    : parameters_(parameters), config_(config), dp_(dp), memory_(parameters.device()) {
  for (const Unit& unit : parameters.units()) add_unit(unit);
}

/// State of this rank's shard of a unit, piece by piece of the parameters that it touches.
void Optimizer::add_unit(const Unit& unit) {
  const FlatRange share = shard_range(unit.range.size(), dp_.rank(), dp_.size());
  const FlatRange shard{unit.range.begin + share.begin, unit.range.begin + share.end};
  const DType state = accumulate_dtype(parameters_.dtype());
  for (Parameter& p : parameters_.list()) {
    const int64_t begin = std::max(shard.begin, p.offset),
                  end = std::min(shard.end, p.offset + p.value.size()), size = end - begin;
    if (size <= 0 || !p.has_grad()) continue;
    OptimizerPiece piece{&p,
                         {begin - p.offset, end - p.offset},
                         part(parameters_.flat_values(), begin, size),
                         {},
                         memory_.zeros({size}, state),
                         memory_.zeros({size}, state),
                         part(parameters_.flat_grads(), begin, size)};
    piece.master = piece.weight;
    if (parameters_.dtype() == DType::bf16) {
      piece.master = memory_.make({size}, state);
      for (int64_t i = 0; i < size; ++i)
        piece.master.as<float>()[i] = static_cast<float>(piece.weight.as<bf16>()[i]);
    }
    pieces_.push_back(piece);
  }
}

double Optimizer::step(Ctx& c, Comm& control, double lr) {
  std::vector<double> square{0.0};
  for (const OptimizerPiece& piece : pieces_) {
    double one = 0.0;
    sum_of_squares(c, &one, piece.grad);
    square[0] += one;
  }
  control.all_reduce_sum(square, "squared gradient norm, sum over dp shards");
  const double norm = std::sqrt(square[0]);
  if (!std::isfinite(norm)) return norm;
  ++count_;
  AdamwStep update{
      .lr = lr, .beta1 = config_.betas[0], .beta2 = config_.betas[1], .eps = config_.eps, .count = count_};
  if (config_.grad_clip > 0) update.grad_scale = std::min(1.0, config_.grad_clip / (norm + 1e-6));
  for (OptimizerPiece& piece : pieces_) {
    update.weight_decay = piece.parameter->spec.decays() ? config_.weight_decay : 0.0;
    adamw_step(c, piece.weight, piece.master, piece.m, piece.v, piece.grad, update);
  }
  gather_weights(c, "new weights, copied from their dp owners");
  return norm;
}

void Optimizer::gather_weights(Ctx& c, const char* what) {
  for (const Unit& unit : parameters_.units()) dp_.all_gather_shards(c, parameters_.values_of(unit), what);
}

void Optimizer::restore(Ctx& c, int64_t count) {
  count_ = count;
  for (OptimizerPiece& piece : pieces_)
    if (piece.master.data != piece.weight.data) round_master(c, piece.weight, piece.master);
  gather_weights(c, "restored weights, copied from their dp owners");
}

}  // namespace temper

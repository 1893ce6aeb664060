#include "src/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "src/ops/optimizer.h"

namespace temper {
namespace {

Tensor part(const Tensor& flat, int64_t begin, int64_t size) { return rows(flat, begin, begin + size); }

}  // namespace

Optimizer::Optimizer(ParameterStore& parameters, const OptimizerConfig& config, const Comm& dp)
    : parameters_(parameters), config_(config) {
  const FlatRange shard = shard_range(parameters.num_elements(), dp.rank(), dp.size());
  const DType state = accumulate_dtype(parameters.dtype());
  const bool own_master = parameters.dtype() == DType::bf16;
  Tensor m = memory_.zeros({shard.size()}, state), v = memory_.zeros({shard.size()}, state), master;
  if (own_master) master = memory_.zeros({shard.size()}, state);
  state_bytes_ = m.bytes() + v.bytes() + (own_master ? master.bytes() : 0);
  for (Parameter& p : parameters.list()) {
    const int64_t begin = std::max(shard.begin, p.offset),
                  end = std::min(shard.end, p.offset + p.spec.size());
    if (begin >= end) continue;
    const int64_t size = end - begin, at = begin - shard.begin;
    OptimizerPiece piece{&p,
                         {begin - p.offset, end - p.offset},
                         part(parameters.flat_values(), begin, size),
                         {},
                         part(m, at, size),
                         part(v, at, size),
                         part(parameters.flat_grads(), begin, size)};
    piece.master = own_master ? part(master, at, size) : piece.weight;
    if (own_master)
      for (int64_t i = 0; i < size; ++i)
        piece.master.as<float>()[i] = static_cast<float>(piece.weight.as<bf16>()[i]);
    pieces_.push_back(piece);
  }
}

double Optimizer::step(Ctx& c, Comm& dp, double lr) {
  std::vector<double> square{0.0};
  for (const OptimizerPiece& piece : pieces_) {
    double one = 0.0;
    sum_of_squares(c, &one, piece.grad);
    square[0] += one;
  }
  dp.all_reduce_sum(square, "squared gradient norm, sum over dp shards");
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
  dp.all_gather_shards(parameters_.flat_values(), "new weights, copied from their dp owners");
  return norm;
}

void Optimizer::restore(Ctx& c, Comm& dp, int64_t count) {
  count_ = count;
  for (OptimizerPiece& piece : pieces_)
    if (piece.master.data != piece.weight.data) round_master(c, piece.weight, piece.master);
  dp.all_gather_shards(parameters_.flat_values(), "restored weights, copied from their dp owners");
}

}  // namespace temper

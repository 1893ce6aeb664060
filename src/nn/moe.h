#pragma once
// Feed-forward layer of experts (Qwen3-MoE, Qwen2-MoE, Mixtral; src/ops/experts.h has the formulas):
//   u = x Wr^T in A, never rounded;  S, w = the K of E experts and their weights
//   y = sum_j w_j Expert_{S_j}(x) + sigmoid(u_E) Shared(x)
// Expert and Shared are SwiGLU layers (nn/mlp.h). The shared expert and its gate, the last row of Wr, are
// there where a model has them. A rank has all experts, or its block of them: where ranks of ep have
// different tokens these go to the experts (nn/parallel/expert_parallel.h); where they have the same ones, as
// in a step of generation within tp, each does the rows of its experts and copies those of others.

#include <optional>

#include "src/nn/mlp.h"
#include "src/nn/model_config.h"
#include "src/nn/parallel/expert_parallel.h"

namespace temper {

struct MoeSaved {
  CTensor x;                       // [T, D]; empty where it is computed again
  Tensor logits, ids, weights;     // [T, E (+ 1)], [T, K], [T, K]
  Tensor offsets, tokens, places;  // of the rows of experts (sort_by_expert)
  Tensor gate_up;   // [R, 2F], R = T K, or with ep the rows of this rank's experts; empty where
                    // it is computed again
  MlpSaved shared;  // of the shared expert
  Tensor shared_y;  // [T, D]
  RouterNotes router;
};

class Moe {
 public:
  struct Parameters {
    Parameter *router, *gate_up, *down;  // [E (+ 1), D], [E 2F, D], [E D, F]
  };
  /// `ep` null: all experts are here. `always_sends`: its ranks have different tokens in generation, too.
  Moe(const MoeConfig& config, const Parameters& parameters, std::optional<Mlp> shared,
      Collectives* ep = nullptr, bool always_sends = false)
      : config_(config), p_(parameters), shared_(std::move(shared)), ep_(ep), always_sends_(always_sends) {}

  /// y [T, D] is the caller's. `stream`: of x, as the shared expert sees it.
  void forward_into(Ctx& c, Tensor y, CTensor x, MoeSaved* saved, const Keep& keep = {},
                    const StreamRows& stream = {}) const;
  /// dx [T, D] in scratch; adds to the weight gradients. `x` as in forward. The gradient of gate_up takes the
  /// memory of what was saved.
  Tensor backward(Ctx& c, CTensor dy, CTensor x, const MoeSaved& saved, const StreamRows& stream = {}) const;
  /// The part of a rank without tokens in the forward, or the backward, of others of ep.
  void join(Ctx& c, bool backward) const;

 private:
  /// Rows that experts work on, as they lie, and where each is of.
  struct Rows {
    CTensor x = {}, dy = {};            // [tokens, D]
    CTensor tokens = {}, offsets = {};  // [R], of sort_by_expert
    CTensor places = {}, weights = {};  // as weigh_expert_rows_backward takes them
    int64_t count() const { return tokens.dim(0); }
  };

  bool apart() const { return ep_ && ep_->size() > 1; }
  void choose(Ctx& c, MoeSaved& s, CTensor x, const Keep& keep) const;
  Tensor experts(Ctx& c, const MoeSaved& s, CTensor x) const;
  Tensor experts_of_ranks(Ctx& c, MoeSaved& s, CTensor x, const Keep& keep) const;
  void multiply(Ctx& c, Tensor made, Tensor gate_up, const Rows& of) const;
  void multiply_gate_up(Ctx& c, Tensor gate_up, const Rows& of) const;
  Tensor backward_experts(Ctx& c, Tensor dweights, CTensor dy, CTensor x, const MoeSaved& s) const;
  Tensor backward_of_ranks(Ctx& c, Tensor dweights, CTensor dy, CTensor x, const MoeSaved& s) const;
  Tensor multiply_backward(Ctx& c, Tensor dweights, Tensor gate_up, const Rows& of) const;
  Tensor backward_router(Ctx& c, Tensor dlogits, CTensor x) const;
  int64_t num_rows(const CTensor& x) const { return x.dim(0) * config_.experts_per_token; }

  MoeConfig config_;
  Parameters p_;
  std::optional<Mlp> shared_;
  Collectives* ep_;
  bool always_sends_;
};

}  // namespace temper

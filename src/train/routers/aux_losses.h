#pragma once
// Losses on the logits of routers, beside that of the objective; for each layer of experts whose router is
// trained, over the T tokens and N sequences of an update (prompts too), p = softmax of a token's logits:
//   "global"     coef E sum_e f_e P_e,  f_e = share of expert e of all T K choices,  P_e = mean of p_e
//   "sequence"   the same over each sequence alone, the mean of them all
//   "z"          z_coef times the mean of logsumexp(logits)^2
// They do not depend on how tokens are packed or who has them: the choices of the whole update are counted
// by a forward pass before its first backward.

#include <map>
#include <span>

#include "src/config/moe_config.h"
#include "src/models/model.h"
#include "src/nn/router_notes.h"
#include "src/rl/algorithm.h"
#include "src/train/token_pass.h"

namespace temper {

struct AuxLossOptions {
  bool sequence = false, global = false;
  double coef = 0, z_coef = 0;

  static AuxLossOptions of(const MoeSection& config);
  bool counts() const { return sequence || global; }
  bool any() const { return counts() || z_coef > 0; }
  /// "sequence (0.001), z (0.0001)" or "none".
  std::string text() const;
};

class AuxLosses {
 public:
  AuxLosses(const AuxLossOptions& options, const Model& model);

  /// An update begins: `mine` are the micro-batches of this rank, `passes` as in for_each_microbatch. Every
  /// rank of `all`, those that have other tokens or other layers, calls it.
  void begin(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& mine, size_t passes,
             Comm& all);
  /// What the routers are told of a micro-batch with these sequences of the update; in `memory`.
  void add_notes(Ctx& c, Arena& memory, RouterNotes& notes, const Microbatch& mb,
                 std::span<const int32_t> sequences) const;
  /// What they add to the loss: moe/aux_loss, moe/z_loss. Every rank of `all` calls it.
  void add_metrics(const Ctx& c, Comm& all, Metrics& metrics) const;

 private:
  void count(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& mine, size_t passes);
  void add_slopes(double* slopes, int64_t layer, size_t sequence) const;
  Tensor begins_in(Ctx& c, Arena& memory, const Microbatch& mb, size_t sequences) const;
  /// Rows of the counts of a layer: sequences, or all of them at once.
  int64_t num_counted() const { return options_.sequence ? std::ssize(tokens_) : 1; }
  size_t place(int64_t layer, size_t sequence) const {
    const int64_t row = options_.sequence ? static_cast<int64_t>(sequence) : 0;
    return static_cast<size_t>((layer * num_counted() + row) * experts_);
  }

  AuxLossOptions options_;
  const Model& model_;
  int64_t experts_;
  Arena memory_;
  Tensor losses_;                // [2], this rank's of an update; none: there are no losses
  std::vector<double> counts_;   // [L, num_counted, E] of all ranks
  std::vector<double> totals_;   // [L, E]: their sums over the sequences
  std::vector<int64_t> tokens_;  // of each sequence of the update
  double all_tokens_ = 0, num_sequences_ = 0;
};

}  // namespace temper

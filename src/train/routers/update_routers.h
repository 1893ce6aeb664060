#pragma once
// All that an update has to do with routers: what they did, losses of their own, routes that were recorded.

#include "src/train/routers/aux_losses.h"
#include "src/train/routers/router_record.h"

namespace temper {

class UpdateRouters {
 public:
  UpdateRouters(const Model& model, const RouteOptions& routes, const AuxLossOptions& losses)
      : model_(model),
        routes_(routes),
        record_(model.config(), model.dtype(), model.device(), routes),
        losses_(losses, model) {}

  /// An update begins: see AuxLosses::begin.
  void begin(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& mine, size_t passes,
             Comm& all) {
    record_.clear(c.lane);
    losses_.begin(c, pass, mine, passes, all);
  }
  /// For a micro-batch with these sequences of the update; in `memory`.
  RouterNotes notes(Ctx& c, Arena& memory, const Microbatch& mb, std::span<const Trajectory* const> all,
                    std::span<const int32_t> sequences) const {
    RouterNotes notes{.sums = record_.sums()};
    add_given_routes(c, memory, notes, routes_, model_, mb, routes_of(all, sequences));
    if (!notes.given.empty()) notes.others = record_.others();
    losses_.add_notes(c, memory, notes, mb, sequences);
    return notes;
  }
  /// Every rank of `all`, those that have other tokens or other layers, calls it.
  void add_metrics(const Ctx& c, Comm& all, Metrics& metrics) const {
    record_.add_metrics(c, all, metrics);
    losses_.add_metrics(c, all, metrics);
  }

 private:
  const Model& model_;
  RouteOptions routes_;
  RouterRecord record_;
  AuxLosses losses_;
};

}  // namespace temper

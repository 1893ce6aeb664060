#pragma once
// Routes that were recorded where a response was sampled, for the routers of a pass over it.

#include <span>

#include "src/core/arena.h"
#include "src/models/model.h"
#include "src/nn/router_notes.h"
#include "src/rl/routes.h"
#include "src/rl/types.h"
#include "src/train/microbatch.h"

namespace temper {

struct RouteOptions {
  RouteShape shape = {};  // of what is recorded; without layers: nothing is
  bool follows = false;   // the recorded experts take the tokens, weighed by the router of now
};

/// What these sequences of all have.
std::vector<const Routes*> routes_of(std::span<const Trajectory* const> all,
                                     std::span<const int32_t> sequences);

/// Adds the routes of the rows that this rank has of a layer, in `memory`. `routes`: of the sequences of the
/// micro-batch; nothing where none has any.
void add_given_routes(Ctx& c, Arena& memory, RouterNotes& notes, const RouteOptions& options,
                      const Model& model, const Microbatch& mb, const std::vector<const Routes*>& routes);

}  // namespace temper

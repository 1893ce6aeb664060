#pragma once
// Which experts took the tokens of a prompt and its response (Response::routes): a head that says of which
// shape they are, then a row for each token that went through the model, which the last one does not. A row
// has the ids of each layer of experts, ascending, in one byte each, or in two where there are more than 256
// experts.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/core/json.h"

namespace temper {

struct RouteShape {
  int64_t layers = 0;  // of experts
  int64_t experts = 0;
  int64_t chosen = 0;  // of them, by a token

  int64_t row_ids() const { return layers * chosen; }
  int64_t row_bytes() const { return row_ids() * id_bytes(); }
  int64_t id_bytes() const { return experts > 256 ? 2 : 1; }
  /// "8 of 128 experts in 48 layers".
  std::string text() const;
  bool operator==(const RouteShape&) const = default;
};

using Routes = std::vector<uint8_t>;

/// They have no rows yet.
Routes make_routes(const RouteShape& shape);
/// The routes are not empty.
RouteShape route_shape(const Routes& routes);
int64_t route_rows(const Routes& routes);
/// One more row: ids [layers, chosen].
void append_route(Routes& routes, std::span<const int32_t> ids);
/// The ids of a row, [layers, chosen].
void read_route(const Routes& routes, int64_t row, std::span<int32_t> ids);

/// {"layers", "experts", "chosen", "ids": the rows in base64}.
Json routes_to_json(const Routes& routes);
/// Why they are no routes of `rows` rows, or not of `shape` (if that has layers); empty: `routes` has them.
std::string routes_from_json(const Json& json, const RouteShape& shape, int64_t rows, Routes& routes);

}  // namespace temper

#include "src/train/routers/given_routes.h"

#include <algorithm>

namespace temper {
namespace {

/// The ids of rows [own.begin, own.end) of a packed micro-batch, [L, own, K].
class GivenIds {
 public:
  GivenIds(const ModelConfig& model, const RouteShape& shape, const FlatRange& own)
      : model_(model),
        shape_(shape),
        own_(own),
        ids_(static_cast<size_t>(model.num_layers * own.size() * shape.chosen), -1) {}

  /// The sequence has rows [begin, end).
  void add(const Routes& routes, int64_t begin, int64_t end) {
    CHECK(route_shape(routes) == shape_, "routes of {} for a model of {}", route_shape(routes).text(),
          shape_.text());
    std::vector<int32_t> row(static_cast<size_t>(shape_.row_ids()));
    const int64_t last = std::min({end, own_.end, begin + route_rows(routes)});
    for (int64_t at = std::max(begin, own_.begin); at < last; ++at) {
      read_route(routes, at - begin, row);
      auto from = row.begin();
      for (const int64_t layer : model_.moe.layers) {
        std::copy_n(from, shape_.chosen,
                    ids_.begin() + (layer * own_.size() + at - own_.begin) * shape_.chosen);
        from += shape_.chosen;
      }
    }
  }
  const std::vector<int32_t>& ids() const { return ids_; }

 private:
  const ModelConfig& model_;
  RouteShape shape_;
  FlatRange own_;
  std::vector<int32_t> ids_;
};

}  // namespace

std::vector<const Routes*> routes_of(std::span<const Trajectory* const> all,
                                     std::span<const int32_t> sequences) {
  std::vector<const Routes*> routes;
  for (const int32_t sequence : sequences)
    routes.push_back(&all[static_cast<size_t>(sequence)]->response.routes);
  return routes;
}

void add_given_routes(Ctx& c, Arena& memory, RouterNotes& notes, const RouteOptions& options,
                      const Model& model, const Microbatch& mb, const std::vector<const Routes*>& routes) {
  const bool some = std::any_of(routes.begin(), routes.end(), [](const Routes* of) { return !of->empty(); });
  if (options.shape.layers == 0 || !(some || counts_only(c.device))) return;
  const FlatRange tokens = model.splits().own_tokens(mb.stream());
  GivenIds given(model.config(), options.shape, {mb.own.begin + tokens.begin, mb.own.begin + tokens.end});
  for (size_t s = 0; s < routes.size(); ++s)
    if (!routes[s]->empty()) given.add(*routes[s], mb.cu_seqlens[s], mb.cu_seqlens[s + 1]);
  notes.given = memory.make({model.config().num_layers, tokens.size(), options.shape.chosen}, DType::i32);
  device::copy_to_device(c.lane, notes.given.raw(), given.ids().data(), notes.given.bytes());
  notes.follows = options.follows;
}

}  // namespace temper

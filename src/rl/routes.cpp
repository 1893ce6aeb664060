#include "src/rl/routes.h"

#include <array>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr int64_t kMost = 65535;  // of each number of the head
constexpr size_t kHead = 6;
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void put(Routes& bytes, int64_t value) {
  bytes.push_back(static_cast<uint8_t>(value & 0xff));
  bytes.push_back(static_cast<uint8_t>(value >> 8));
}
int64_t take(const Routes& bytes, size_t at) { return bytes[at] | bytes[at + 1] << 8; }

std::string base64(std::span<const uint8_t> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t here = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < here ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= here ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

/// Appends what the text stands for; false: it is no base64.
bool append_base64(Routes& bytes, std::string_view text) {
  if (text.size() % 4 != 0) return false;
  std::array<int, 256> value;
  value.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) value[static_cast<uint8_t>(kDigits[i])] = static_cast<int>(i);
  while (!text.empty()) {
    const bool last = text.size() == 4;
    const size_t padding = !last || text[3] != '=' ? 0 : text[2] != '=' ? 1 : 2;
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int digit = k >= 4 - padding ? 0 : value[static_cast<uint8_t>(text[k])];
      if (digit < 0) return false;
      bits = bits << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t k = 0; k < 3 - padding; ++k) bytes.push_back(static_cast<uint8_t>(bits >> (16 - 8 * k)));
    text.remove_prefix(4);
  }
  return true;
}

/// The number under a key; -1: there is none that fits.
int64_t number_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return -1;
  const auto value = found->get<int64_t>();
  return value >= 1 && value <= kMost ? value : -1;
}

/// Why rows hold something else than ascending ids of experts.
std::string ids_defect(const Routes& routes) {
  const RouteShape shape = route_shape(routes);
  std::vector<int32_t> ids(static_cast<size_t>(shape.row_ids()));
  for (int64_t row = 0; row < route_rows(routes); ++row) {
    read_route(routes, row, ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto layer = static_cast<int64_t>(i) / shape.chosen;
      if (ids[i] >= shape.experts)
        return fmt::format("token {} took expert {} of layer {} of experts, which has {}: 0 to {}", row,
                           ids[i], layer, shape.experts, shape.experts - 1);
      if (static_cast<int64_t>(i) % shape.chosen > 0 && ids[i] <= ids[i - 1])
        return fmt::format("the experts of token {} in layer {} of experts do not ascend: {} after {}", row,
                           layer, ids[i], ids[i - 1]);
    }
  }
  return "";
}

}  // namespace

std::string RouteShape::text() const {
  return fmt::format("{} of {} experts in {} layers", chosen, experts, layers);
}

Routes make_routes(const RouteShape& shape) {
  CHECK(shape.layers <= kMost && shape.experts <= kMost && shape.chosen <= kMost, "routes of {}",
        shape.text());
  Routes routes;
  for (const int64_t number : {shape.layers, shape.experts, shape.chosen}) put(routes, number);
  return routes;
}

RouteShape route_shape(const Routes& routes) {
  CHECK(routes.size() >= kHead, "routes of {} bytes", routes.size());
  return {take(routes, 0), take(routes, 2), take(routes, 4)};
}

int64_t route_rows(const Routes& routes) {
  const int64_t row = route_shape(routes).row_bytes();
  return row > 0 ? (std::ssize(routes) - static_cast<int64_t>(kHead)) / row : 0;
}

void append_route(Routes& routes, std::span<const int32_t> ids) {
  const RouteShape shape = route_shape(routes);
  CHECK(std::ssize(ids) == shape.row_ids(), "{} ids in a row of {}", ids.size(), shape.text());
  for (const int32_t id : ids)
    if (shape.id_bytes() == 1)
      routes.push_back(static_cast<uint8_t>(id));
    else
      put(routes, id);
}

void read_route(const Routes& routes, int64_t row, std::span<int32_t> ids) {
  const RouteShape shape = route_shape(routes);
  CHECK(row < route_rows(routes) && std::ssize(ids) == shape.row_ids(), "row {} of {} routes of {}", row,
        route_rows(routes), shape.text());
  size_t at = kHead + static_cast<size_t>(row * shape.row_bytes());
  for (int32_t& id : ids) {
    id = shape.id_bytes() == 1 ? routes[at] : static_cast<int32_t>(take(routes, at));
    at += static_cast<size_t>(shape.id_bytes());
  }
}

Json routes_to_json(const Routes& routes) {
  const RouteShape shape = route_shape(routes);
  return {{"layers", shape.layers},
          {"experts", shape.experts},
          {"chosen", shape.chosen},
          {"ids", base64(std::span(routes).subspan(kHead))}};
}

std::string routes_from_json(const Json& json, const RouteShape& shape, int64_t rows, Routes& routes) {
  if (!json.is_object()) return fmt::format("it is a JSON {}, not an object", json.type_name());
  const RouteShape own{number_at(json, "layers"), number_at(json, "experts"), number_at(json, "chosen")};
  if (own.layers < 0 || own.experts < 0 || own.chosen < 0 || own.chosen > own.experts)
    return fmt::format("layers, experts and chosen are not numbers of 1 to {} with chosen <= experts", kMost);
  if (shape.layers > 0 && own != shape)
    return fmt::format("they are of another model: {}, this one has {}", own.text(), shape.text());
  const auto ids = json.find("ids");
  if (ids == json.end() || !ids->is_string()) return "ids is no text";
  routes = make_routes(own);
  const auto& text = ids->get_ref<const std::string&>();
  if (std::ssize(text) > (rows * own.row_bytes() + 2) / 3 * 4 || !append_base64(routes, text) ||
      std::ssize(routes) != static_cast<int64_t>(kHead) + rows * own.row_bytes())
    return fmt::format("ids is not base64 of {} rows of {} bytes, one for each token but the last", rows,
                       own.row_bytes());
  return ids_defect(routes);
}

}  // namespace temper

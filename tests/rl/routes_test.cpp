// Routes as bytes, as JSON and in messages, and what is refused of a file.

#include "src/rl/routes.h"

#include <gtest/gtest.h>

#include "src/rl/trajectory_bytes.h"
#include "src/rl/trajectory_json.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

/// Ascending ids that use the whole range.
std::vector<int32_t> ids_of_row(const RouteShape& s, int64_t row) {
  std::vector<int32_t> ids;
  for (int64_t layer = 0; layer < s.layers; ++layer)
    for (int64_t j = 0; j < s.chosen; ++j)
      ids.push_back(static_cast<int32_t>((row + layer) % 2 == 0 ? s.experts - s.chosen + j : j));
  return ids;
}
Routes some_routes(const RouteShape& s, int64_t rows) {
  Routes routes = make_routes(s);
  for (int64_t row = 0; row < rows; ++row) append_route(routes, ids_of_row(s, row));
  return routes;
}

const RouteShape kShapes[] = {{3, 6, 2}, {1, 256, 3}, {2, 257, 5}, {4, 1024, 1}, {1, 1, 1}};

TEST(Routes, ComeBackAsTheyWere) {
  for (const RouteShape& s : kShapes)
    for (const int64_t rows : {0, 1, 2, 7}) {
      const Routes routes = some_routes(s, rows);
      EXPECT_EQ(route_shape(routes), s);
      EXPECT_EQ(route_rows(routes), rows);
      EXPECT_EQ(std::ssize(routes), 6 + rows * s.layers * s.chosen * (s.experts > 256 ? 2 : 1));
      std::vector<int32_t> ids(static_cast<size_t>(s.row_ids()));
      for (int64_t row = 0; row < rows; ++row) {
        read_route(routes, row, ids);
        EXPECT_EQ(ids, ids_of_row(s, row));
      }
      Routes back;
      EXPECT_EQ(routes_from_json(parse_json(routes_to_json(routes).dump(), "x"), s, rows, back), "");
      EXPECT_EQ(back, routes);
    }
}

TEST(Routes, GoWithTheirResponse) {
  Trajectory t;
  t.prompt_tokens = {1, 2};
  t.response.tokens = {3, 4, 5};
  t.response.mask = {1, 1, 1};
  t.response.finish = FinishReason::stop;
  t.response.routes = some_routes(kShapes[0], 4);
  for (const bool excluded : {false, true}) {
    t.excluded = excluded;
    std::string bytes;
    append_trajectory(bytes, t);
    std::string_view rest = bytes;
    const Trajectory back = take_trajectory(rest);
    EXPECT_EQ(back.response.routes, t.response.routes);
    EXPECT_EQ(back.excluded, excluded);
    EXPECT_TRUE(rest.empty());
  }
  const Json line = trajectory_to_json(t, 1);
  EXPECT_EQ(trajectory_from_json(line, "x", {}).response.routes, t.response.routes);
  EXPECT_EQ(trajectory_from_json(line, "x", {.routes = kShapes[0], .needs_routes = true}).response.routes,
            t.response.routes);
}

TEST(Routes, WrongOnesAreRefused) {
  Trajectory t;
  t.prompt_tokens = {1, 2};
  t.response.tokens = {3, 4, 5};
  t.response.mask = {1, 1, 1};
  t.response.finish = FinishReason::stop;
  const RouteShape s = kShapes[0];
  t.response.routes = some_routes(s, 4);
  const Json good = trajectory_to_json(t, 1);
  const auto refused = [&](const char* what, const std::vector<std::string>& words,
                           const std::function<void(Json&)>& change) {
    Json line = good;
    change(line);
    std::vector<std::string> all = words;
    all.push_back("routes");
    expect_error(Exit::data, all, what,
                 [&] { trajectory_from_json(line, "x", {.routes = s, .needs_routes = true}); });
  };
  const auto ids = [](const std::vector<std::vector<int32_t>>& rows) {
    Routes routes = make_routes(kShapes[0]);
    for (const auto& row : rows) append_route(routes, row);
    return routes_to_json(routes)["ids"];
  };
  const std::vector<int32_t> row = ids_of_row(s, 0);
  std::vector<int32_t> beyond = row, doubled = row, down = row;
  beyond[1] = 6;
  doubled[2] = doubled[3];
  std::swap(down[4], down[5]);
  refused("missing", {"the key is missing", "moe.replay"}, [](Json& l) { l.erase("routes"); });
  refused("null", {"the key is missing"}, [](Json& l) { l["routes"] = nullptr; });
  refused("a list", {"not an object"}, [](Json& l) { l["routes"] = Json::array(); });
  refused("another model", {"of another model", "2 of 8 experts in 3 layers", "2 of 6 experts in 3 layers"},
          [](Json& l) { l["routes"]["experts"] = 8; });
  refused("layers", {"of another model"}, [](Json& l) { l["routes"]["layers"] = 4; });
  refused("no number", {"not numbers of 1 to 65535"}, [](Json& l) { l["routes"]["chosen"] = "2"; });
  refused("zero", {"not numbers of 1 to 65535"}, [](Json& l) { l["routes"]["layers"] = 0; });
  refused("no text", {"ids is no text"}, [](Json& l) { l["routes"]["ids"] = 7; });
  refused("no base64", {"base64 of 4 rows of 6 bytes"}, [](Json& l) { l["routes"]["ids"] = "????"; });
  refused("short", {"base64 of 4 rows"}, [&](Json& l) { l["routes"]["ids"] = ids({row, row, row}); });
  refused("long", {"base64 of 4 rows"}, [&](Json& l) {
    l["routes"]["ids"] = ids({row, row, row, row, row});
  });
  refused("beyond E", {"token 2 took expert 6 of layer 0", "0 to 5"}, [&](Json& l) {
    l["routes"]["ids"] = ids({row, row, beyond, row});
  });
  refused("twice", {"do not ascend", "token 1 in layer 1"}, [&](Json& l) {
    l["routes"]["ids"] = ids({row, doubled, row, row});
  });
  refused("down", {"do not ascend", "layer 2"}, [&](Json& l) {
    l["routes"]["ids"] = ids({row, row, row, down});
  });
  Json without = good;
  without.erase("routes");
  EXPECT_TRUE(trajectory_from_json(without, "x", {.routes = s}).response.routes.empty());
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

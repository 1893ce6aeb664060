#include "src/nn/rope_table.h"

#include <map>

#include "src/core/json.h"
#include "tests/support/check_op.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

RopeConfig config_of(const Json& golden) {
  const Json& rope = golden["rope"];
  RopeConfig c{.type = rope["rope_type"], .theta = rope["rope_theta"]};
  c.max_position_embeddings = golden["max_position_embeddings"].get<int64_t>();
  const auto read = [&](const char* key, std::optional<double>& to) {
    if (rope.contains(key)) to = rope[key].get<double>();
  };
  read("factor", c.factor);
  read("low_freq_factor", c.low_freq_factor);
  read("high_freq_factor", c.high_freq_factor);
  read("beta_fast", c.beta_fast);
  read("beta_slow", c.beta_slow);
  read("mscale", c.mscale);
  read("mscale_all_dim", c.mscale_all_dim);
  read("attention_factor", c.attention_factor);
  if (rope.contains("original_max_position_embeddings"))
    c.original_max_position_embeddings = rope["original_max_position_embeddings"].get<int64_t>();
  c.truncate = rope.value("truncate", true);
  c.short_factor = rope.value("short_factor", std::vector<double>{});
  c.long_factor = rope.value("long_factor", std::vector<double>{});
  return c;
}

Values frequencies(const RopeTable& table) {
  return {table.inverse_frequency.begin(), table.inverse_frequency.end()};
}

/// transformers' tables, to 1 ulp of its power function (its vector code is not correctly rounded for every
/// theta).
TEST(RopeTable, EqualsTransformers) {
  const Json cases = read_json_file("tests/golden/nn/rope.json");
  ASSERT_GE(cases.size(), 12u);
  for (const Json& golden : cases) {
    const std::string name = golden["name"];
    const int64_t last = golden["last"], half = golden["head_dim"].get<int64_t>() / 2;
    const RopeTable table = make_rope_table(config_of(golden), 2 * half, last + 1);
    const Values want = golden["inverse_frequency"], got = frequencies(table);
    ASSERT_EQ(got.size(), want.size()) << name;
    int different = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 1.2e-7 * want[i]) << name << ", frequency " << i;
      different += got[i] != want[i];
    }
    EXPECT_LE(different, golden["rope"]["rope_theta"] == 1e4 || golden["rope"]["rope_theta"] == 5e5 ? 0 : 2)
        << name;
    EXPECT_NEAR(table.attention_factor, golden["attention_factor"].get<double>(), 1e-14) << name;
    if (different) continue;
    TestCtx c;
    TestTensor cosine(c, DType::f32, {last + 1, half}), sine(c, DType::f32, {last + 1, half});
    fill_cos_sin(table, last + 1, cosine, sine);
    expect_near(name + ", cosine", slice_rows(cosine.values(), half, last, last + 1), golden["cosine"],
                1.2e-7);
    expect_near(name + ", sine", slice_rows(sine.values(), half, last, last + 1), golden["sine"], 1.2e-7);
  }
}

void expect_frequencies(const RopeConfig& config, int64_t head_dim, const std::map<int, double>& want) {
  const RopeTable table = make_rope_table(config, head_dim, 100);
  for (const auto& [i, f] : want)
    EXPECT_NEAR(table.inverse_frequency[static_cast<size_t>(i)], f, 2e-7 * f)
        << config.type << ", frequency " << i;
}

RopeConfig llama3(double factor) {
  RopeConfig c{.type = "llama3", .theta = 5e5, .factor = factor};
  c.original_max_position_embeddings = 8192;
  c.low_freq_factor = 1.0;
  c.high_freq_factor = 4.0;
  return c;
}

RopeConfig deepseek_v3() {
  RopeConfig c{.type = "yarn", .theta = 1e4, .factor = 40.0};
  c.original_max_position_embeddings = 4096;
  c.beta_fast = 32.0;
  c.beta_slow = 1.0;
  c.mscale = 1.0;
  c.mscale_all_dim = 1.0;
  return c;
}

/// Computed in fp64.
TEST(RopeTable, PublishedModels) {
  expect_frequencies(llama3(8), 128,
                     {{1, 8.146172339e-01},
                      {28, 3.211445995e-03},
                      {29, 2.166570764e-03},
                      {34, 1.785078128e-04},
                      {35, 9.556212354e-05},
                      {63, 3.068925989e-07}});
  expect_frequencies(
      llama3(32), 128,
      {{29, 2.118406997e-03}, {34, 9.708287803e-05}, {35, 2.389053088e-05}, {63, 7.672314972e-08}});
  expect_frequencies(llama3(32), 64,
                     {{1, 6.636012377e-01},
                      {14, 3.211445995e-03},
                      {15, 1.290547928e-03},
                      {17, 9.708287803e-05},
                      {18, 1.946163818e-05},
                      {31, 9.418306725e-08}});
  expect_frequencies(deepseek_v3(), 64,
                     {{0, 1.0},
                      {1, 7.498942093e-01},
                      {10, 5.623413252e-02},
                      {11, 3.900692657e-02},
                      {16, 5.5e-03},
                      {22, 1.778279410e-04},
                      {23, 3.333803580e-05},
                      {24, 2.5e-05},
                      {31, 3.333803580e-06}});
  EXPECT_EQ(make_rope_table(deepseek_v3(), 64, 100).attention_factor, 1.0);
}

TEST(RopeTable, AttentionFactorOfYarn) {
  RopeConfig c{.type = "yarn", .theta = 1e6, .factor = 4.0};
  c.original_max_position_embeddings = 32768;
  EXPECT_NEAR(make_rope_table(c, 128, 100).attention_factor, 1.138629436, 1e-9);
  c.mscale = 0.5;  // alone it has no effect
  EXPECT_NEAR(make_rope_table(c, 128, 100).attention_factor, 1.138629436, 1e-9);
  c.attention_factor = 1.5;
  EXPECT_EQ(make_rope_table(c, 128, 100).attention_factor, 1.5);
  c = {.type = "yarn", .theta = 1e6};  // the factor is the growth of the context
  c.max_position_embeddings = 131072;
  c.original_max_position_embeddings = 32768;
  EXPECT_NEAR(make_rope_table(c, 128, 100).attention_factor, 1.138629436, 1e-9);
}

TEST(RopeTable, DynamicOnlyInsideTheModelsContext) {
  RopeConfig c{.type = "dynamic", .theta = 1e4, .factor = 4.0};
  c.max_position_embeddings = 4096;
  EXPECT_EQ(make_rope_table(c, 64, 4096).inverse_frequency, make_rope_table({}, 64, 4096).inverse_frequency);
  expect_error(Exit::data, {"dynamic", "4097", "4096"}, "dynamic", [&] { make_rope_table(c, 64, 4097); });
}

TEST(RopeTable, CosineAndSine) {
  TestCtx c;
  RopeTable table{.inverse_frequency = {1.0f, 0.1f}, .attention_factor = 1.5};
  TestTensor c32(c, DType::f32, {3000, 2}), s32(c, DType::f32, {3000, 2}), c64(c, DType::f64, {3000, 2}),
      s64(c, DType::f64, {3000, 2});
  fill_cos_sin(table, 3000, c32, s32);
  fill_cos_sin(table, 3000, c64, s64);
  const float angle = 2999.0f * 0.1f;  // not 299.9: the angle is rounded to fp32
  EXPECT_EQ(c64.values()[5999], 1.5 * std::cos(static_cast<double>(angle)));
  EXPECT_EQ(s64.values()[5999], 1.5 * std::sin(static_cast<double>(angle)));
  expect_near("cosine", c32.values(), c64.values(), 1.2e-7);
  expect_near("sine", s32.values(), s64.values(), 1.2e-7);
  EXPECT_EQ(c32.values()[0], 1.5);
  EXPECT_EQ(s32.values()[0], 0.0);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

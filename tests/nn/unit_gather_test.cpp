// Which units are on their way while a pass works with another.

#include "src/nn/parallel/unit_gather.h"

#include <gtest/gtest.h>

#include "src/ops/backend.h"

namespace temper {
namespace {

/// The first of two ranks; notes where what it gets is to lie.
class NotingTransport : public Transport {
 public:
  explicit NotingTransport(std::vector<const void*>& places) : places_(places) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  const char* carrier() const override { return "notes"; }
  void exchange(Lane&, std::span<const Parcel>, std::span<const Parcel> in, const char*) override {
    places_.push_back(in.front().data);
  }

 private:
  std::vector<const void*>& places_;
};

class GatherAhead : public ::testing::Test {
 protected:
  /// Embedding, three layers, head.
  void make(bool tied) {
    const char* const names[] = {"embed", "layers.0", "layers.1", "layers.2", "head"};
    for (int64_t i = 0; i < 5; ++i) {
      const int64_t rows = i == 0 ? 64 : i == 4 ? 48 : 32;
      const std::string name = names[i];
      ParamSpec spec{
          .name = name, .parts = {{name, rows}}, .shape = {rows, 16}, .unit = name, .unit_number = i};
      if (tied && i == 0) spec.also_in = 4;
      store_.add(std::move(spec));
    }
    store_.allocate(DType::f32, false, Device::cpu, {0, 2, /*of_values=*/true});
    ASSERT_EQ(store_.units().size(), 5u);
    store_.keep_own(ctx_.lane);
    store_.split_values(ctx_.lane);
  }
  UnitGroup unit(size_t i) const { return store_.group(static_cast<int64_t>(i)); }
  const void* window(size_t i) const { return store_.values_of(unit(i).front()).data; }
  void gather(size_t i) { gather_.gather(ctx_, store_, unit(i)); }
  /// So far, in this order.
  void expect_gathered(const std::vector<size_t>& units) {
    std::vector<const void*> want;
    for (const size_t i : units) {
      const int64_t size = unit(i).front().range.size();
      want.push_back(rows(store_.values_of(unit(i).front()), shard_range(size, 1, 2).begin, size).data);
    }
    EXPECT_EQ(places_, want);
  }

  Backend backend_{Device::cpu};
  Ctx& ctx_ = backend_.ctx();
  ParameterStore store_;
  std::vector<const void*> places_;
  Collectives owners_{std::make_unique<NotingTransport>(places_)};
  UnitGather gather_{owners_, owners_, Device::cpu};
};

TEST_F(GatherAhead, TheNextUnitIsOnItsWay) {
  make(false);
  gather_.expect({unit(0), unit(1), unit(2), unit(3), unit(4)});
  gather(0);
  expect_gathered({0, 1});
  gather(1);
  expect_gathered({0, 1, 2});
  gather(2);
  gather(3);
  expect_gathered({0, 1, 2, 3, 4});
  gather(4);
  expect_gathered({0, 1, 2, 3, 4});
  gather_.expect({unit(3), unit(2), unit(1)});
  gather(3);
  expect_gathered({0, 1, 2, 3, 4, 3, 2});
  gather(2);
  gather(1);
  expect_gathered({0, 1, 2, 3, 4, 3, 2, 1});
}

/// One that has the window of the unit at work waits for its turn.
TEST_F(GatherAhead, NotIntoTheWindowThatIsInUse) {
  make(false);
  gather_.expect({unit(2), unit(3), unit(3), unit(1), unit(2)});
  gather(2);
  gather(3);
  expect_gathered({2, 3});
  gather(3);
  expect_gathered({2, 3, 3});
  gather(1);
  expect_gathered({2, 3, 3, 1, 2});
  gather(2);
  expect_gathered({2, 3, 3, 1, 2});
}

TEST_F(GatherAhead, UnitsAtOneTimeHaveWindowsOfTheirOwn) {
  make(false);
  for (size_t i = 0; i + 1 < 5; ++i) EXPECT_NE(window(i), window(i + 1)) << i;
  EXPECT_EQ(window(1), window(3));
  EXPECT_EQ(window(0), window(4));
}

TEST_F(GatherAhead, ATiedEmbeddingStaysBesideTheHead) {
  make(true);
  for (size_t i = 1; i < 5; ++i) EXPECT_NE(window(0), window(i)) << i;
}

TEST_F(GatherAhead, UnitsThatNobodyExpectsAreGatheredNow) {
  make(false);
  gather(2);
  gather(2);
  expect_gathered({2, 2});
}

TEST_F(GatherAhead, AnotherOrderIsAnError) {
  make(false);
  gather_.expect({unit(0), unit(1)});
  EXPECT_THROW(gather(1), std::exception);
  gather(0);
  EXPECT_THROW(gather_.expect({unit(2)}), std::exception) << "one is on its way";
  gather(1);
  EXPECT_NO_THROW(gather_.expect({unit(2)}));
}

TEST_F(GatherAhead, WholeValuesAreNotGathered) {
  make(false);
  store_.join_values(ctx_.lane);
  gather_.expect({unit(0), unit(1)});
  gather(0);
  gather(1);
  EXPECT_TRUE(places_.empty());
  EXPECT_NO_THROW(gather_.expect({}));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

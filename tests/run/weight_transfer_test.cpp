// The plan by which weights travel: every element once, from one source; equal bits at the receiver; a
// message that is not what is awaited, or was changed on its way, stops the run.

#include "src/run/exchange/weight_transfer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/expect_error.h"
#include "tests/support/random.h"

namespace temper {
namespace {

/// Odd numbers of rows, fewer rows than sources, vectors, rows of one element.
const std::vector<std::vector<int64_t>> kShapes = {{7, 3}, {2, 5}, {1}, {1, 4}, {13}, {16, 16}, {5, 1}, {3}};

void make_store(ParameterStore& store, DType dtype, uint64_t seed) {
  for (size_t i = 0; i < kShapes.size(); ++i)
    store.add({.name = fmt::format("p{}", i),
               .parts = {{fmt::format("hf{}", i), kShapes[i][0]}},
               .shape = kShapes[i]});
  store.allocate(dtype, false);
  for (size_t i = 0; i < kShapes.size(); ++i) {
    const Tensor& value = store.list()[i].value;
    const std::vector<double> random = normal_values(value.size(), seed + i);
    for (int64_t e = 0; e < value.size(); ++e)
      if (dtype == DType::f64)
        value.as<double>()[e] = random[static_cast<size_t>(e)];
      else
        value.as<float>()[e] = static_cast<float>(random[static_cast<size_t>(e)]);
  }
}

std::string bits(const ParameterStore& store) {
  const Tensor flat = store.flat_values();
  return {static_cast<const char*>(flat.raw()), static_cast<size_t>(flat.bytes())};
}

TEST(WeightTransfer, EveryElementComesFromOneSource) {
  ParameterStore store;
  make_store(store, DType::f32, 1);
  for (int sources = 1; sources <= 5; ++sources) {
    std::vector<std::vector<int>> times;
    for (const auto& shape : kShapes) times.emplace_back(static_cast<size_t>(shape[0]), 0);
    int64_t bytes = 0;
    const WeightTransfer transfer(store, sources);
    for (const WeightPiece& piece : transfer.pieces()) {
      const ParamSpec& spec = store.list()[static_cast<size_t>(piece.parameter)].spec;
      ASSERT_TRUE(piece.source_index >= 0 && piece.source_index < sources) << piece.source_index;
      ASSERT_TRUE(piece.rows > 0 && piece.begin >= 0 && piece.begin + piece.rows <= spec.shape[0])
          << spec.name;
      EXPECT_EQ(piece.bytes, piece.rows * (spec.size() / spec.shape[0]) * 4) << spec.name;
      for (int64_t row = piece.begin; row < piece.begin + piece.rows; ++row)
        ++times[static_cast<size_t>(piece.parameter)][static_cast<size_t>(row)];
      bytes += piece.bytes;
    }
    for (size_t i = 0; i < times.size(); ++i)
      EXPECT_EQ(times[i], std::vector<int>(times[i].size(), 1))
          << "parameter " << i << ", " << sources << " sources";
    EXPECT_EQ(bytes, store.num_parameters() * 4);
  }
}

TEST(WeightTransfer, SharesTheRowsEvenly) {
  ParameterStore store;
  store.add({.name = "w", .parts = {{"w", 1001}}, .shape = {1001, 8}});
  store.allocate(DType::f32, false);
  const WeightTransfer transfer(store, 4);
  for (const WeightPiece& piece : transfer.pieces()) EXPECT_TRUE(piece.rows == 250 || piece.rows == 251);
}

TEST(WeightTransfer, TheSameBitsArrive) {
  for (DType dtype : {DType::f32, DType::f64})
    for (int sources = 1; sources <= 5; ++sources) {
      ParameterStore from, to;
      make_store(from, dtype, 10);
      make_store(to, dtype, 20);
      WeightTransfer sender(from, sources), receiver(to, sources);
      for (int64_t version : {0, 1, 2}) {
        std::memset(from.list()[0].value.raw(), static_cast<int>(version), 5);
        ASSERT_NE(bits(from), bits(to));
        for (int source = sources - 1; source >= 0; --source)  // any order of sources
          receiver.apply(to, source, version, sender.message(from, source, version));
        receiver.check_digest(to);
        EXPECT_TRUE(bits(from) == bits(to))
            << dtype_name(dtype) << ", " << sources << " sources, version " << version;
      }
    }
}

class BrokenTransfer : public ::testing::Test {
 protected:
  BrokenTransfer() {
    make_store(from_, DType::f32, 10);
    make_store(to_, DType::f32, 20);
    transfer_ = std::make_unique<WeightTransfer>(from_, 2);
  }
  std::string message(int source, int64_t version = 5) { return transfer_->message(from_, source, version); }
  void apply(int source, const std::string& message) { transfer_->apply(to_, source, 5, message); }

  ParameterStore from_, to_;
  std::unique_ptr<WeightTransfer> transfer_;
};

TEST_F(BrokenTransfer, OfAnotherVersionOrSizeIsRefused) {
  for (int64_t version : {0, 4, 6})
    expect_error(Exit::internal, {fmt::format("version {} came, 5 is awaited", version)}, "version",
                 [&] { apply(0, message(0, version)); });
  const std::string good = message(1);
  std::vector<std::string> wrong = {"", good.substr(0, 8), good.substr(0, 39),
                                    good.substr(0, good.size() - 1), good + "x"};
  for (const std::string& bytes : wrong)
    expect_error(Exit::internal, {fmt::format("{} bytes instead of {}", bytes.size(), good.size())}, "size",
                 [&] { apply(1, bytes); });
  EXPECT_NE(message(0).size(), good.size());
  expect_error(Exit::internal, {"bytes instead of"}, "message of the other source",
               [&] { apply(1, message(0)); });
}

TEST_F(BrokenTransfer, OneFlippedBitIsFound) {
  const std::string good[] = {message(0), message(1)};
  int64_t flips = 0;
  for (int source : {0, 1})
    for (size_t at = sizeof(int64_t); at < good[source].size(); at += 13, ++flips) {
      std::string bad = good[source];
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      apply(source, bad);
      apply(1 - source, good[1 - source]);
      expect_error(Exit::storage, {"changed on their way", "trainer rank"}, fmt::format("byte {}", at),
                   [&] { transfer_->check_digest(to_); });
    }
  EXPECT_GT(flips, 100);
  for (int source : {0, 1}) apply(source, good[source]);
  transfer_->check_digest(to_);
  EXPECT_TRUE(bits(from_) == bits(to_));
}

TEST_F(BrokenTransfer, AMissingSourceIsFound) {
  apply(0, message(0));
  expect_error(Exit::storage, {"changed on their way"}, "one source only",
               [&] { transfer_->check_digest(to_); });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

#pragma once
// The collectives against serial loops in rank order, bit for bit: sizes that are zero, odd, smaller than the
// number of ranks, more than the 64 MiB that are sent at once; on all ranks and on some. The same tests run
// on 2 and 4 ranks (mpi_comm_mpi*_test.cpp).

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ops/backend.h"
#include "tests/support/expect_error.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

namespace temper {

class CollectivesTest : public OnRanks {
 protected:
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  Ctx& ctx() { return backend_.ctx(); }

  Backend backend_{Device::cpu};
  std::unique_ptr<Collectives> tensors_ = collectives_of_all();
};

/// Values of very different size, so that the order of a sum shows in its bits.
template <class T>
std::vector<T> values_of(int rank, int64_t count) {
  std::vector<T> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double u = uniform_value(77 + static_cast<uint64_t>(rank), i);
    out[static_cast<size_t>(i)] = static_cast<T>((u - 0.5) * std::pow(10.0, (i + 3 * rank) % 8));
  }
  return out;
}

template <class T>
std::vector<T> serial_sum(int ranks, int64_t count) {
  std::vector<T> sum = values_of<T>(0, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<T> part = values_of<T>(r, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

inline constexpr int64_t kCounts[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 1000, 4097, 300001};

template <class T>
void check_reduce_scatter(Ctx& c, Collectives& comm, int64_t count) {
  const std::vector<T> mine = values_of<T>(comm.rank(), count), sum = serial_sum<T>(comm.size(), count);
  std::vector<T> flat = mine;
  flat.resize(flat.size() + 1);  // an empty vector has no memory to point at
  comm.reduce_scatter_sum(c, make_tensor(flat.data(), kDTypeOf<T>, {count}), "test: reduce-scatter");
  const FlatRange own = shard_range(count, comm.rank(), comm.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const T want = i >= own.begin && i < own.end ? sum[at] : mine[at];
    ASSERT_EQ(std::memcmp(&flat[at], &want, sizeof want), 0)
        << "element " << i << " of " << count << ": " << flat[at] << ", expected " << want;
  }
}

template <class T>
void check_all_gather_shards(Ctx& c, Collectives& comm, int64_t count) {
  std::vector<T> flat(static_cast<size_t>(count) + 1), want;
  const FlatRange own = shard_range(count, comm.rank(), comm.size());
  for (int r = 0; r < comm.size(); ++r) {
    const std::vector<T> theirs = values_of<T>(r, count);
    const FlatRange range = shard_range(count, r, comm.size());
    want.insert(want.end(), theirs.begin() + range.begin, theirs.begin() + range.end);
    if (r == comm.rank())
      std::copy(theirs.begin() + own.begin, theirs.begin() + own.end, flat.begin() + own.begin);
  }
  comm.all_gather_shards(c, make_tensor(flat.data(), kDTypeOf<T>, {count}), "test: gather of shards");
  flat.pop_back();
  ASSERT_EQ(flat, want) << count;
}

/// fp32 parts of bf16 sums: one rounding, the same bits on all ranks.
TEST_F(CollectivesTest, WideSumsAreRoundedOnce) {
  for (const int64_t count : kCounts) {
    std::vector<float> parts = values_of<float>(rank(), count);
    const std::vector<float> sum = serial_sum<float>(size(), count);
    std::vector<bf16> got(static_cast<size_t>(count) + 1), want(sum.begin(), sum.end());
    parts.resize(parts.size() + 1);
    tensors_->all_reduce_sum_into(ctx(), make_tensor(got.data(), DType::bf16, {count}),
                                  make_tensor(parts.data(), DType::f32, {count}), "test: wide sum");
    got.pop_back();
    EXPECT_TRUE(std::ranges::equal(got, want, {}, &bf16::bits, &bf16::bits)) << count;
  }
}

/// What lies elsewhere gets the sum added; what was summed stays.
TEST_F(CollectivesTest, SumsAreAddedToTheOwnShardElsewhere) {
  for (const int64_t count : kCounts) {
    const FlatRange own = shard_range(count, rank(), size());
    std::vector<float> flat = values_of<float>(rank(), count), kept = values_of<float>(size(), own.size());
    const std::vector<float> sum = serial_sum<float>(size(), count), before = kept;
    flat.resize(flat.size() + 1);
    kept.resize(kept.size() + 1);
    tensors_->reduce_scatter_onto(ctx(), make_tensor(kept.data(), DType::f32, {own.size()}),
                                  make_tensor(flat.data(), DType::f32, {count}), "test: onto");
    for (int64_t i = 0; i < own.size(); ++i)
      ASSERT_EQ(kept[static_cast<size_t>(i)],
                before[static_cast<size_t>(i)] + sum[static_cast<size_t>(own.begin + i)]);
    flat.pop_back();
    EXPECT_EQ(flat, values_of<float>(rank(), count));
  }
}

TEST_F(CollectivesTest, BlocksGoToTheirRanks) {
  for (const int64_t count : kCounts) {
    std::vector<float> blocks = values_of<float>(rank(), count * size());
    const std::vector<float> all = serial_sum<float>(size(), count * size());
    std::vector<bf16> got(static_cast<size_t>(count) + 1);
    const std::vector<bf16> want(all.begin() + rank() * count, all.begin() + (rank() + 1) * count);
    blocks.resize(blocks.size() + 1);
    std::vector<FlatRange> ranges;
    for (int64_t r = 0; r < size(); ++r) ranges.push_back({r * count, (r + 1) * count});
    tensors_->reduce_scatter_ranges(ctx(), make_tensor(got.data(), DType::bf16, {count}),
                                    make_tensor(blocks.data(), DType::f32, {count * size()}), ranges,
                                    "test: blocks");
    got.pop_back();
    EXPECT_TRUE(std::ranges::equal(got, want, {}, &bf16::bits, &bf16::bits)) << count;
  }
}

/// Rank 1 has nothing, what belongs to nobody stays as it is.
TEST_F(CollectivesTest, RangesMayBeUneven) {
  std::vector<FlatRange> ranges;
  int64_t at = 3;
  for (int r = 0; r < size(); ++r) {
    ranges.push_back({at, at + (r == 1 ? 0 : 10 * r + 5)});
    at = ranges.back().end;
  }
  std::vector<float> flat(static_cast<size_t>(at) + 4, -1.0f), want = flat;
  for (int r = 0; r < size(); ++r)
    for (int64_t i = ranges[static_cast<size_t>(r)].begin; i < ranges[static_cast<size_t>(r)].end; ++i) {
      want[static_cast<size_t>(i)] = static_cast<float>(r + 1);
      if (r == rank()) flat[static_cast<size_t>(i)] = static_cast<float>(r + 1);
    }
  tensors_->all_gather_ranges(ctx(), make_tensor(flat.data(), DType::f32, {std::ssize(flat)}), ranges,
                              "test: ranges");
  EXPECT_EQ(flat, want);
}

TEST(ShardRange, CutsAtMultiplesOf16AndCoversAll) {
  for (int64_t elements : kCounts)
    for (int size : {1, 2, 3, 4, 7, 64}) {
      int64_t covered = 0;
      for (int rank = 0; rank < size; ++rank) {
        const FlatRange r = shard_range(elements, rank, size);
        ASSERT_EQ(r.begin, covered);
        ASSERT_GE(r.size(), 0);
        ASSERT_TRUE(r.begin % 16 == 0 || r.begin == elements);
        ASSERT_LE(r.size(), (elements + size - 1) / size + 15);
        covered = r.end;
      }
      ASSERT_EQ(covered, elements);
    }
}

TEST_F(CollectivesTest, ReduceScatter) {
  for (int64_t count : kCounts) {
    ASSERT_NO_FATAL_FAILURE(check_reduce_scatter<float>(ctx(), *tensors_, count));
    ASSERT_NO_FATAL_FAILURE(check_reduce_scatter<double>(ctx(), *tensors_, count));
  }
}

TEST_F(CollectivesTest, AllGatherOfShards) {
  for (int64_t count : kCounts) {
    ASSERT_NO_FATAL_FAILURE(check_all_gather_shards<float>(ctx(), *tensors_, count));
    ASSERT_NO_FATAL_FAILURE(check_all_gather_shards<double>(ctx(), *tensors_, count));
    ASSERT_NO_FATAL_FAILURE(check_all_gather_shards<int32_t>(ctx(), *tensors_, count));
  }
}

/// Bytes whose content depends on the rank that made them.
inline std::string bytes_of(int rank, int64_t count) {
  std::string text(static_cast<size_t>(count), '\0');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(i * 31 + i / 251 + static_cast<size_t>(rank));
  return text;
}

/// Sums of these are exact.
inline float plain_value(int64_t i, int rank) { return static_cast<float>(i % 1009 + 3 * rank); }

TEST_F(CollectivesTest, ReduceScatterInSeveralPieces) {
  const int64_t count = (int64_t{16} << 20) + 75;  // 64 MiB and a rest
  std::vector<float> flat(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) flat[static_cast<size_t>(i)] = plain_value(i, rank());
  tensors_->reduce_scatter_sum(ctx(), make_tensor(flat.data(), DType::f32, {count}),
                               "test: large reduce-scatter");
  const FlatRange own = shard_range(count, rank(), size());
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto ranks = static_cast<float>(size());
    const float sum = static_cast<float>(i % 1009) * ranks + 1.5f * ranks * (ranks - 1);
    wrong += flat[static_cast<size_t>(i)] != (i >= own.begin && i < own.end ? sum : plain_value(i, rank()));
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(CollectivesTest, GatherOfShardsAndBroadcastInSeveralPieces) {
  if (size() > 2) GTEST_SKIP() << "64 MiB per rank: on 2 ranks only";
  const int64_t count = (int64_t{33} << 20) + 75;
  std::vector<float> flat(static_cast<size_t>(count), -1.0f);
  const FlatRange own = shard_range(count, rank(), size());
  for (int64_t i = own.begin; i < own.end; ++i) flat[static_cast<size_t>(i)] = plain_value(i, 0);
  tensors_->all_gather_shards(ctx(), make_tensor(flat.data(), DType::f32, {count}), "test: large gather");
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) wrong += flat[static_cast<size_t>(i)] != plain_value(i, 0);
  EXPECT_EQ(wrong, 0);
  const std::string bytes(reinterpret_cast<const char*>(flat.data()), (size_t{64} << 20) + 5);
  EXPECT_TRUE(comm_->broadcast(rank() == 1 ? bytes : "", 1, "test: large broadcast") == bytes);
}

TEST_F(CollectivesTest, BroadcastFromEveryRoot) {
  for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001}, int64_t{3} << 20})
    for (int root = 0; root < size(); ++root) {
      const std::string mine = rank() == root ? bytes_of(root, count) : "of no interest";
      ASSERT_EQ(comm_->broadcast(mine, root, "test: broadcast"), bytes_of(root, count))
          << count << " from " << root;
    }
}

TEST_F(CollectivesTest, AllGatherOfDifferentSizes) {
  for (int64_t scale : {0, 1, 1000, 700001}) {
    const std::vector<std::string> all = comm_->all_gather(bytes_of(rank(), scale * rank()), "test: gather");
    ASSERT_EQ(all.size(), static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r) ASSERT_EQ(all[static_cast<size_t>(r)], bytes_of(r, scale * r));
  }
}

TEST_F(CollectivesTest, AllReduceSum) {
  for (int64_t count : {0, 1, 3, 1000, 200001}) {
    std::vector<double> values = values_of<double>(rank(), count);
    comm_->all_reduce_sum(values, "test: sum");
    const std::vector<double> want = serial_sum<double>(size(), count);
    ASSERT_EQ(values.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(std::memcmp(&values[i], &want[i], sizeof(double)), 0) << i << " of " << count;
  }
}

TEST_F(CollectivesTest, AllReduceSumOfDifferentSizesIsRefused) {
  std::vector<double> values(static_cast<size_t>(3 + rank()));
  EXPECT_THROW(comm_->all_reduce_sum(values, "test: uneven sum"), Error);
}

TEST_F(CollectivesTest, AllReduceMax) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(comm_->all_reduce_max(rank() * 1.5, "test: max"), 1.5 * (size() - 1));
  EXPECT_EQ(comm_->all_reduce_max(-1.0 - rank(), "test: max"), -1.0);
  EXPECT_EQ(comm_->all_reduce_max(-kInfinity, "test: max"), -kInfinity);
  EXPECT_EQ(comm_->all_reduce_max(rank() == 1 ? kInfinity : 0.0, "test: max"), kInfinity);
  for (int bad = 0; bad < size(); ++bad)
    for (double other : {-3.0, 0.0, 3.0, kInfinity})
      EXPECT_TRUE(std::isnan(comm_->all_reduce_max(rank() == bad ? nan : other, "test: max"))) << bad;
}

TEST_F(CollectivesTest, ManyCallsInARowKeepTheirOrder) {
  for (int i = 0; i < 200; ++i) {
    const std::vector<std::string> all =
        comm_->all_gather(fmt::format("{} {}", i, rank()), "test: row of calls");
    for (int r = 0; r < size(); ++r) ASSERT_EQ(all[static_cast<size_t>(r)], fmt::format("{} {}", i, r));
    if (i % 3 == 0) comm_->barrier("test: barrier between");
  }
}

TEST_F(CollectivesTest, SubsetsAreWorldsOfTheirOwn) {
  std::vector<std::vector<int>> subsets = {{0}, {size() - 1}, {0, size() - 1}};
  if (size() == 4) subsets.insert(subsets.end(), {{1, 2}, {0, 2, 3}});
  for (const std::vector<int>& ranks : subsets) {
    const auto at = std::find(ranks.begin(), ranks.end(), rank());
    const bool member = at != ranks.end();
    const auto part = test_world->make_comm(ranks, kTestWaitLimit);
    const auto tensors =
        test_world->make_collectives(member ? 0 : -1, rank(), Device::cpu, "part", kTestWaitLimit);
    ASSERT_EQ(part != nullptr, member);
    ASSERT_EQ(tensors != nullptr, member);
    if (!part) continue;
    EXPECT_EQ(part->size(), static_cast<int>(ranks.size()));
    EXPECT_EQ(part->rank(), static_cast<int>(at - ranks.begin()));
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{77}, int64_t{4097}}) {
      ASSERT_NO_FATAL_FAILURE(check_reduce_scatter<float>(ctx(), *tensors, count));
      ASSERT_NO_FATAL_FAILURE(check_all_gather_shards<double>(ctx(), *tensors, count));
    }
    const std::vector<std::string> all = part->all_gather(std::to_string(rank()), "test: world ranks");
    for (size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(all[i], std::to_string(ranks[i]));
  }
}

TEST_F(CollectivesTest, TwoCommsDoNotMix) {
  const auto other = comm_of_all();
  std::string from_a, from_b;
  for (int i = 0; i < 20; ++i) {
    from_a = comm_->broadcast(fmt::format("a{}", i), 0, "test: first comm");
    from_b = other->broadcast(fmt::format("b{}", i), size() - 1, "test: second comm");
    ASSERT_EQ(from_a, fmt::format("a{}", i));
    ASSERT_EQ(from_b, fmt::format("b{}", i));
  }
}

}  // namespace temper

// How ranks of a host divide its cores: equal masks, masks of their own, overlaps, quotas, ranks without
// roles.

#include "src/run/host/rank_threads.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "src/core/check.h"

namespace temper {
namespace {

Cpus cores(int first, int count, std::vector<CpuQuota> quotas = {}) {
  Cpus cpus{std::vector<int>(static_cast<size_t>(count)), std::move(quotas)};
  std::iota(cpus.cores.begin(), cpus.cores.end(), first);
  return cpus;
}

std::vector<int> divide(const std::vector<Cpus>& ranks) {
  std::vector<int> threads;
  for (size_t i = 0; i < ranks.size(); ++i) threads.push_back(divide_cpus(ranks, i).number);
  return threads;
}
using Parts = std::vector<int>;

TEST(DivideCpus, EqualMasksAreDivided) {
  EXPECT_EQ(divide({cores(0, 2), cores(0, 2)}), (Parts{1, 1}));
  EXPECT_EQ(divide({cores(0, 16), cores(0, 16), cores(0, 16)}), (Parts{5, 5, 5}));
  EXPECT_EQ(divide(std::vector<Cpus>(3, cores(0, 3))), (Parts{1, 1, 1})) << "three thirds are one";
  EXPECT_EQ(divide(std::vector<Cpus>(49, cores(0, 49))), Parts(49, 1)) << "and 49 parts, too";
  EXPECT_EQ(divide(std::vector<Cpus>(8, cores(0, 4))), Parts(8, 1)) << "never none";
}

TEST(DivideCpus, MasksOfTheirOwnAreNot) {
  EXPECT_EQ(divide({cores(0, 8), cores(8, 4)}), (Parts{8, 4}));
  EXPECT_EQ(divide({cores(3, 5)}), (Parts{5}));
}

/// Each core goes in equal parts to those that may use it.
TEST(DivideCpus, OverlapsAreDividedAlone) {
  EXPECT_EQ(divide({cores(0, 4), cores(0, 2)}), (Parts{3, 1}));
  EXPECT_EQ(divide({cores(0, 6), cores(4, 6)}), (Parts{5, 5}));
}

TEST(DivideCpus, QuotasAreDividedByTheRanksOfAGroup) {
  const std::vector<CpuQuota> job{{7, 5.5}};
  EXPECT_EQ(divide({cores(0, 16, job)}), (Parts{5}));
  EXPECT_EQ(divide({cores(0, 16, job), cores(0, 16, job)}), (Parts{2, 2}));
  EXPECT_EQ(divide({cores(0, 4, {{1, 3}}), cores(0, 4, {{2, 3}})}), (Parts{2, 2})) << "a group each: cores";
  EXPECT_EQ(divide({cores(0, 8, {{1, 3}, {9, 4}}), cores(8, 8, {{2, 3}, {9, 4}})}), (Parts{2, 2}))
      << "the group around both";
  EXPECT_EQ(divide({cores(0, 16, {{7, 0.2}})}), (Parts{1}));
}

TEST(DivideCpus, RanksWithoutRolesTakeNoPart) {
  EXPECT_EQ(divide({cores(0, 8, {{1, 4}}), Cpus{}})[0], 4);
  EXPECT_EQ(divide({cores(0, 8), Cpus{}})[0], 8);
}

TEST(DivideCpus, TheReasonIsSaid) {
  const auto why = [](const std::vector<Cpus>& ranks) { return divide_cpus(ranks, 0).why; };
  const int online = cores_online();
  EXPECT_EQ(why({cores(0, online)}), fmt::format("{} cores", online));
  EXPECT_EQ(why({cores(0, online), cores(0, online)}), fmt::format("{} cores, 2 ranks share them", online));
  EXPECT_EQ(why({cores(0, 1, {}), cores(1, 1)}),
            online == 1 ? "1 cores" : fmt::format("1 of {} cores by the affinity mask", online));
  EXPECT_EQ(why({cores(0, 64, {{1, 1.5}}), cores(0, 64, {{1, 1.5}})}),
            "a CPU quota of 1.5 cores, 2 ranks share it");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

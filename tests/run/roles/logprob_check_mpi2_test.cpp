// A token that the trained weights sampled has the same log-prob where it is trained, or the run says so at
// once: whole runs on two ranks, one of which forgets a weight between sampling and training.

#include "tests/run/roles/toy_run.h"

namespace temper {
namespace {

constexpr int64_t kBadStep = 3;
constexpr int kBadRank = 1;

/// Stands between rollout and trainer. `plants`: on one rank, in one step, a weight changes there.
class Between : public Role {
 public:
  Between(const RoleParts& p, bool plants) : p_(p), plants_(plants) {}
  bool phase(int64_t step) override {
    for (; done_ < p_.lead.limit(step); ++done_) {
      while (p_.groups.take(p_.stage, done_ + 1)) {
      }
      p_.groups.close(p_.stage, done_ + 1, {});
    }
    const Tensor weights = p_.models.trained()->parameters().flat_values();
    if (plants_ && step == kBadStep && p_.trace.rank() == kBadRank)
      weights.as<float>()[weights.size() / 2] += 0.5f;
    return true;
  }

 private:
  const RoleParts p_;
  bool plants_;
  int64_t done_ = p_.lead.done;
};

template <bool plants>
std::unique_ptr<Role> make_between(const RoleParts& p) {
  return std::make_unique<Between>(p, plants);
}

class LogprobCheck : public ToyRun {
 protected:
  /// Warnings about log-probs: on stderr of the rank that has it, in the log of each rank.
  struct Warnings {
    int64_t on_stderr = 0;
    std::vector<std::string> in_log[2] = {};
  };
  Warnings run(const std::string& name, bool plants, std::vector<std::string> overrides) {
    rows_.back() = {"between", Duty::annotates, toy_ranks, plants ? make_between<true> : make_between<false>};
    overrides.push_back("log.level=warn");
    ::testing::internal::CaptureStderr();
    const int code = train(name, false, overrides);
    const std::string errors = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code, static_cast<int>(Exit::ok)) << errors;
    comm_->barrier("test: logs are written");
    Warnings found{.on_stderr = std::ssize(warnings(errors))};
    for (const int rank : {0, 1})
      found.in_log[rank] =
          warnings(read_file(fmt::format("{}/runs/{}/logs/rank-{:04d}.log", folder_, name, rank), 1 << 20));
    return found;
  }
  double largest_difference(const std::string& name) const {
    double largest = 0;
    for (const Json& line : lines(name + "/metrics.jsonl"))
      largest = std::max(largest, line.value("actor/rollout_logprob_diff_max", 0.0));
    return largest;
  }
  int64_t on_stderr_of_rank_0(int64_t count) const { return comm_->rank() == 0 ? count : 0; }

 private:
  static std::vector<std::string> warnings(const std::string& text) {
    std::vector<std::string> found;
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
      end = std::min(text.find('\n', at), text.size());
      const std::string line = text.substr(at, end - at);
      if (line.find("was sampled with log-prob") != std::string::npos) found.push_back(line);
    }
    return found;
  }
};

TEST_F(LogprobCheck, APlantedDifferenceIsToldOnceWithItsPlace) {
  for (const std::string limit : {"0", "5"}) {
    const Warnings planted = run("limit" + limit, true, {"rollout.tokens_per_step=" + limit});
    EXPECT_EQ(planted.on_stderr, on_stderr_of_rank_0(1)) << limit;
    for (const int rank : {0, 1}) {  // the rank that saw it, and the one that speaks for all
      ASSERT_EQ(planted.in_log[rank].size(), 1u) << limit << ", log of rank " << rank;
      for (const char* part : {"step 3: rank 1: prompt ", "sample ", "response token ", "same weights"})
        EXPECT_NE(planted.in_log[rank][0].find(part), std::string::npos) << planted.in_log[rank][0];
    }
  }
}

TEST_F(LogprobCheck, APlantedDifferenceStopsTheRunWhereItIsToldTo) {
  rows_.back() = {"between", Duty::annotates, toy_ranks, make_between<true>};
  std::string text;
  try {
    train("stops", false, {"algorithm.mismatch=stop", "log.level=error"});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::numerics);
    text = error.what();
  }
  for (const char* part : {"step 3", "rank 1: prompt ", "response token ", "mismatch/"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_FALSE(lines("stops/mismatch/step-000003.jsonl").empty());
}

/// Tokens of older weights differ, as the weights do: of responses that take several steps, of a lag.
TEST_F(LogprobCheck, OlderWeightsMayDiffer) {
  for (const std::string lag : {"0", "1"}) {
    const Warnings none = run("lag" + lag, false, {"run.max_policy_lag=" + lag});
    EXPECT_EQ(none.on_stderr, 0) << lag;
    for (const int rank : {0, 1}) EXPECT_TRUE(none.in_log[rank].empty()) << none.in_log[rank][0];
    EXPECT_GT(largest_difference("lag" + lag), 0) << lag;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 2); }

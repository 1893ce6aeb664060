#pragma once
// The rollout engine, the packed pass of the trainer and the scoring pass give the same log-probs bit for
// bit, whatever the schedule, the pages, the packing and the number of ranks; and the samples do not depend
// on them. Lengths cross the four borders at which attention splits its keys (every 1,024 positions) below
// 4,500. The same tests run on 1, 2, 3 and 4 ranks (one_numerics_test.cpp, one_numerics_mpi*_test.cpp).

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "src/comm/mpi_comm.h"
#include "src/ops/backend.h"
#include "src/rl/trajectory_bytes.h"
#include "src/rollout/engine.h"
#include "src/train/token_pass.h"
#include "tests/support/tiny_model.h"

namespace temper {

inline constexpr double kWaitLimit = 120.0;
inline const MpiSession* mpi_world = nullptr;
/// Response tokens of this process whose log-prob was compared.
inline int64_t compared_tokens = 0;

struct Workload {
  std::vector<Request> requests;
  GenerateOptions options;
};

/// Short prompts, ended by a stop token or by length, and prompts just below each border, with 80 tokens
/// each.
inline Workload mixed_workload() {
  Workload w;
  for (int64_t i = 0; i < 16; ++i) w.requests.push_back(tiny_request(i, 1 + (i * 37) % 70, 4));
  for (int64_t border = 1; border <= 4; ++border)
    w.requests.push_back(tiny_request(100 + border, 1024 * border - 30 - 3 * border, border == 1 ? 3 : 2));
  w.options.seed = 11;
  w.options.max_new_tokens = 80;
  w.options.stop_token_ids = {7};
  w.options.num_sampleable = kTinyVocab;
  return w;
}

/// Two samples that walk over all borders one token at a time.
inline Workload long_workload() {
  Workload w;
  w.requests.push_back(tiny_request(40, 3, 2));
  w.options.seed = 3;
  w.options.max_new_tokens = 4300;
  w.options.num_sampleable = kTinyVocab;
  return w;
}

/// How an engine runs; no result may depend on it.
struct Schedule {
  int64_t max_running = 64, chunk = 64, page_tokens = 16, num_pages = 4096;
  int threads = 1;
};

struct RolloutResult {
  std::vector<Group> groups;
  RolloutCounters counters;
  std::vector<const Trajectory*> all() const {
    std::vector<const Trajectory*> list;
    for (const Group& group : groups)
      for (const Trajectory& t : group.samples) list.push_back(&t);
    return list;
  }
};

inline RolloutResult roll_out(const Model& model, const Workload& work, const Schedule& schedule) {
  EngineOptions options{.scheduler = {schedule.max_running, schedule.chunk},
                        .page_tokens = schedule.page_tokens,
                        .num_pages = schedule.num_pages,
                        .poison_free_pages = true};
  Backend backend(Device::cpu, schedule.threads);
  Ctx& c = backend.ctx();
  Engine engine(model, options, c.lane);
  RolloutResult result;
  result.groups.resize(work.requests.size());
  const auto keep = [&](size_t i, std::vector<Response> responses) {
    for (size_t k = 0; k < responses.size(); ++k) {
      Trajectory t;
      t.data_position = work.requests[i].data_position;
      t.sample = static_cast<int32_t>(k);
      t.prompt_tokens = work.requests[i].prompt;
      t.response = std::move(responses[k]);
      result.groups[i].samples.push_back(std::move(t));
    }
  };
  result.counters = engine.generate(c, work.requests, work.options, nullptr, keep);
  return result;
}

/// Bits of the log-probs of one response; also that they are log-probs.
inline void expect_logprobs(const std::vector<double>& got, const std::vector<double>& want,
                            const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::isfinite(want[i]) && want[i] <= 1e-6) << what << ", token " << i << ": " << want[i];
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof want[i]), 0)
        << what << ", token " << i << " of " << want.size() << ": " << got[i] << " and " << want[i];
  }
  compared_tokens += static_cast<int64_t>(want.size());
}

inline void expect_same_rollout(const RolloutResult& got, const RolloutResult& want,
                                const std::string& what) {
  const auto a = got.all(), b = want.all();
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < b.size(); ++i) {
    const std::string which = fmt::format("{}, prompt {} sample {}", what, b[i]->data_position, b[i]->sample);
    ASSERT_EQ(a[i]->response.tokens, b[i]->response.tokens) << which;
    ASSERT_EQ(a[i]->response.finish, b[i]->response.finish) << which;
    ASSERT_NO_FATAL_FAILURE(expect_logprobs(a[i]->response.logprobs, b[i]->response.logprobs, which));
  }
}

/// The packed pass over all ranks of `comm` against the log-probs of the engine.
inline void expect_trainer_agrees(const Model& model, Comm& comm, const std::vector<const Trajectory*>& all,
                                  int64_t token_budget, double temperature, const std::string& what) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const PassOptions options{.temperature = temperature, .token_budget = token_budget, .cost = {}};
  const auto logprobs = packed_logprobs(c, model, comm, all, options);
  ASSERT_EQ(logprobs.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_NO_FATAL_FAILURE(
        expect_logprobs(logprobs[i], all[i]->response.logprobs,
                        fmt::format("{}, budget {}, sequence {}", what, token_budget, i)));
}

/// The requests dealt to the ranks in turn, each rank with a schedule of its own; the groups of all ranks.
inline RolloutResult roll_out_dealt(const Model& model, const Workload& work, Comm& comm) {
  const auto rank = static_cast<size_t>(comm.rank()), ranks = static_cast<size_t>(comm.size());
  const Schedule schedules[] = {{.max_running = 7, .chunk = 64},
                                {.max_running = 64, .chunk = 7, .page_tokens = 32, .num_pages = 2048},
                                {.max_running = 3, .chunk = 100, .num_pages = 300},
                                {.max_running = 64, .chunk = 33, .page_tokens = 64, .num_pages = 1024}};
  Workload mine{.requests = {}, .options = work.options};
  for (size_t i = rank; i < work.requests.size(); i += ranks) mine.requests.push_back(work.requests[i]);
  const RolloutResult part = roll_out(model, mine, schedules[rank % 4]);
  RolloutResult whole;
  whole.groups.resize(work.requests.size());
  const auto parts = comm.all_gather(groups_to_bytes(part.groups), "groups of all ranks");
  for (size_t r = 0; r < parts.size(); ++r) {
    std::vector<Group> groups = groups_from_bytes(parts[r]);
    for (size_t k = 0; k < groups.size(); ++k) whole.groups.at(r + k * ranks) = std::move(groups[k]);
  }
  return whole;
}

class OneNumerics : public ::testing::TestWithParam<DType> {
 protected:
  OneNumerics() : model_(tiny_model(GetParam())) {
    std::vector<int> ranks;
    for (int r = 0; r < mpi_world->size(); ++r) ranks.push_back(r);
    comm_ = mpi_world->make_comm(ranks, kWaitLimit);
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Comm> comm_;
};

TEST_P(OneNumerics, RanksAndPackingDoNotMatter) {
  for (const Workload& work : {mixed_workload(), long_workload()}) {
    const RolloutResult dealt = roll_out_dealt(*model_, work, *comm_);
    if (comm_->rank() == 0) expect_same_rollout(dealt, roll_out(*model_, work, {}), "dealt and alone");
    std::vector<const Trajectory*> all = dealt.all();
    expect_trainer_agrees(*model_, *comm_, all, 4600, 1.0, "one long sequence at a time");
    expect_trainer_agrees(*model_, *comm_, all, 50000, 1.0, "all together");
    std::reverse(all.begin(), all.end());
    expect_trainer_agrees(*model_, *comm_, all, 9001, 1.0, "reversed");
  }
}

TEST_P(OneNumerics, ExpertsToo) {
  Workload work = mixed_workload();
  work.requests.resize(17);
  for (const int64_t shared : {0, 24}) {
    const auto model = tiny_model_of(tiny_moe_config(shared), GetParam());
    const RolloutResult dealt = roll_out_dealt(*model, work, *comm_);
    if (comm_->rank() == 0) expect_same_rollout(dealt, roll_out(*model, work, {}), "dealt and alone");
    expect_trainer_agrees(*model, *comm_, dealt.all(), 1200, 1.0, "one long sequence at a time");
    expect_trainer_agrees(*model, *comm_, dealt.all(), 50000, 1.0, "all together");
  }
}

/// Every option that changes a draw is on.
TEST_P(OneNumerics, RanksDoNotMatterToPenalties) {
  Workload work = mixed_workload();
  work.requests.resize(17);
  work.options.sampling = {.temperature = 1.2,
                           .top_k = 60,
                           .top_p = 0.98,
                           .min_p = 0.001,
                           .repetition_penalty = 1.2,
                           .frequency_penalty = 0.1,
                           .presence_penalty = -0.3};
  work.options.min_new_tokens = 5;
  work.options.logit_bias = {{2, -3.0}, {7, 1.0}};
  const RolloutResult dealt = roll_out_dealt(*model_, work, *comm_);
  if (comm_->rank() == 0) expect_same_rollout(dealt, roll_out(*model_, work, {}), "dealt and alone");
  expect_trainer_agrees(*model_, *comm_, dealt.all(), 4600, 1.2, "penalties");
}

/// Runs all tests of this process on exactly `num_ranks` ranks.
inline int run_one_numerics(int argc, char** argv, int num_ranks) {
  ::testing::InitGoogleTest(&argc, argv);
  // An exception has to end the process, and the launcher then all others, instead of leaving them in a
  // collective.
  GTEST_FLAG_SET(catch_exceptions, false);
  const MpiSession world(&argc, &argv);
  mpi_world = &world;
  if (world.size() != num_ranks) {
    std::fprintf(stderr, "this test needs %d ranks, it runs on %d\n", num_ranks, world.size());
    return static_cast<int>(Exit::environment);
  }
  const int result = RUN_ALL_TESTS();
  std::printf("rank %d of %d: %ld log-probs compared\n", world.rank(), world.size(), compared_tokens);
  return result;
}

inline std::string dtype_test_name(const ::testing::TestParamInfo<DType>& tested) {
  return dtype_name(tested.param);
}

INSTANTIATE_TEST_SUITE_P(Storage, OneNumerics, ::testing::Values(DType::f32, DType::bf16), dtype_test_name);

}  // namespace temper

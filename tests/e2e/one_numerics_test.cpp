// One numerics on one rank: schedules, pages, preemption, filters, the scoring pass, and the counters which
// prove that nothing ran twice.

#include "tests/e2e/one_numerics.h"

#include "src/ops/backend.h"

namespace temper {
namespace {

using OneNumericsAlone = OneNumerics;

struct Expected {
  int64_t prefilled = 0, shared = 0, generated = 0;
};

/// Rows of a run in which nothing is computed twice.
Expected expected_rows(const Workload& work, const RolloutResult& result) {
  Expected e;
  for (size_t i = 0; i < work.requests.size(); ++i) {
    const Request& r = work.requests[i];
    e.prefilled += static_cast<int64_t>(r.prompt.size());
    e.shared += (r.num_samples - 1) * static_cast<int64_t>(r.prompt.size());
    for (const Trajectory& t : result.groups[i].samples)
      e.generated += static_cast<int64_t>(t.response.tokens.size()) - 1;
  }
  return e;
}

void expect_rows(const Workload& work, const RolloutResult& result, bool preempted, const std::string& what) {
  const Expected e = expected_rows(work, result);
  EXPECT_EQ(result.counters.rows_prefilled, e.prefilled) << what;
  EXPECT_EQ(result.counters.rows_shared, e.shared) << what;
  EXPECT_EQ(result.counters.rows_generated, e.generated) << what;
  EXPECT_EQ(result.counters.rows_recomputed > 0, preempted)
      << what << ": " << result.counters.rows_recomputed;
  EXPECT_EQ(result.counters.preemptions > 0, preempted) << what << ": " << result.counters.preemptions;
}

/// `score` sees a sequence as one prompt token and a response: the log-probs of the real response are its
/// last ones.
void expect_score_agrees(const Model& model, Comm& comm, const RolloutResult& result, double temperature) {
  std::vector<Trajectory> lines;
  for (const Trajectory* t : result.all()) {
    Trajectory line;
    std::vector<int32_t> tokens = t->prompt_tokens;
    tokens.insert(tokens.end(), t->response.tokens.begin(), t->response.tokens.end());
    line.prompt_tokens = {tokens.front()};
    line.response.tokens.assign(tokens.begin() + 1, tokens.end());
    lines.push_back(std::move(line));
  }
  std::vector<const Trajectory*> all;
  for (const Trajectory& line : lines) all.push_back(&line);
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  const PassOptions options{.temperature = temperature, .token_budget = 8192, .cost = {}};
  const auto scored = packed_logprobs(c, model, comm, all, options);
  const auto engine = result.all();
  for (size_t i = 0; i < engine.size(); ++i) {
    const auto n = static_cast<ptrdiff_t>(engine[i]->response.logprobs.size());
    ASSERT_NO_FATAL_FAILURE(expect_logprobs({scored[i].end() - n, scored[i].end()},
                                            engine[i]->response.logprobs,
                                            fmt::format("score, sequence {}", i)));
  }
}

/// Neither flat nor certain, and ended in both ways: else the comparisons would say little.
void expect_lively(const RolloutResult& result) {
  double sum = 0, squares = 0, count = 0;
  int stopped = 0, cut = 0;
  for (const Trajectory* t : result.all()) {
    for (double x : t->response.logprobs) sum += x, squares += x * x, ++count;
    (t->response.finish == FinishReason::stop ? stopped : cut) += 1;
  }
  const double mean = sum / count, deviation = std::sqrt(squares / count - mean * mean);
  EXPECT_LT(mean, -0.5);
  EXPECT_GT(mean, -4.4);
  EXPECT_GT(deviation, 0.5);
  EXPECT_GT(stopped, 3);
  EXPECT_GT(cut, 3);
}

TEST_P(OneNumericsAlone, ScheduleDoesNotMatter) {
  const Workload work = mixed_workload();
  const RolloutResult base = roll_out(*model_, work, {});
  expect_lively(base);
  expect_rows(work, base, false, "base");
  expect_trainer_agrees(*model_, *comm_, base.all(), 9001, 1.0, "base");
  expect_score_agrees(*model_, *comm_, base, 1.0);
  for (int64_t chunk : {1, 7, 64})
    for (int64_t running : {1, 7, 64}) {
      const Schedule schedule{.max_running = running,
                              .chunk = chunk,
                              .page_tokens = chunk == 7 ? 32 : 16,
                              .num_pages = 4096,
                              .threads = running == 7 ? 2 : 1};
      const std::string what = fmt::format("chunk {}, {} running", chunk, running);
      const RolloutResult other = roll_out(*model_, work, schedule);
      expect_same_rollout(other, base, what);
      expect_rows(work, other, false, what);
    }
}

TEST_P(OneNumericsAlone, PreemptionOfExpertsDoesNotMatter) {
  Workload work = mixed_workload();
  work.requests.resize(17);
  for (const int64_t shared : {0, 24}) {
    const auto model = tiny_model_of(tiny_moe_config(shared), GetParam());
    const RolloutResult base = roll_out(*model, work, {}),
                        other = roll_out(*model, work, {.page_tokens = 16, .num_pages = 67});
    expect_same_rollout(other, base, "few pages");
    expect_rows(work, other, true, "few pages");
    expect_score_agrees(*model, *comm_, other, 1.0);
  }
}

TEST_P(OneNumericsAlone, PreemptionDoesNotMatter) {
  const Workload whole = mixed_workload();
  Workload up_to_first_border = whole;  // 1,071 tokens at most, and many short sequences beside them
  up_to_first_border.requests.resize(17);
  struct Case {
    const Workload& work;
    Schedule few;
  };
  for (const Case& tight :
       {Case{up_to_first_border, {.max_running = 64, .chunk = 64, .page_tokens = 16, .num_pages = 67}},
        Case{up_to_first_border, {.max_running = 7, .chunk = 31, .page_tokens = 64, .num_pages = 17}},
        Case{whole, {.max_running = 64, .chunk = 512, .page_tokens = 128, .num_pages = 33}}}) {
    const RolloutResult base = roll_out(*model_, tight.work, {});
    const std::string what = fmt::format("{} pages of {}", tight.few.num_pages, tight.few.page_tokens);
    const RolloutResult other = roll_out(*model_, tight.work, tight.few);
    expect_same_rollout(other, base, what);
    expect_rows(tight.work, other, true, what);
    expect_trainer_agrees(*model_, *comm_, other.all(), 4600, 1.0, what);
    std::printf("%s: %ld preemptions, %ld rows recomputed, %ld generated\n", what.c_str(),
                other.counters.preemptions, other.counters.rows_recomputed, other.counters.rows_generated);
  }
}

/// Log-probs are those of the distribution before the filters, at the temperature of the sampling.
TEST_P(OneNumericsAlone, TemperatureAndFilters) {
  Workload work = mixed_workload();
  work.requests.resize(18);
  const RolloutResult free = roll_out(*model_, work, {});
  work.options.sampling = {.temperature = 0.7, .top_k = 20, .top_p = 0.9, .min_p = 0.02};
  const RolloutResult base = roll_out(*model_, work, {});
  EXPECT_NE(base.all()[0]->response.tokens, free.all()[0]->response.tokens);
  expect_trainer_agrees(*model_, *comm_, base.all(), 9001, 0.7, "filters");
  expect_score_agrees(*model_, *comm_, base, 0.7);
  expect_same_rollout(roll_out(*model_, work, {.max_running = 7, .chunk = 5, .num_pages = 140}), base,
                      "filters");
}

/// Everything that changes a draw at once; some ids of the workload's prompts and its stop id have a bias
/// too.
Workload changed_workload() {
  Workload work = mixed_workload();
  work.requests.resize(17);
  work.options.sampling = {.temperature = 0.7,
                           .top_k = 40,
                           .top_p = 0.95,
                           .min_p = 0.005,
                           .repetition_penalty = 1.1,
                           .frequency_penalty = 0.15,
                           .presence_penalty = 0.2};
  work.options.min_new_tokens = 6;
  work.options.logit_bias = {{3, 1.5}, {7, 1.0}, {40, -100.0}, {95, 0.5}};
  return work;
}

/// Log-probs stay those of the policy, and counts of tokens survive preemption.
TEST_P(OneNumericsAlone, PenaltiesBiasAndLeastLength) {
  const Workload work = changed_workload();
  const RolloutResult base = roll_out(*model_, work, {});
  int64_t stopped = 0, early = 0;
  for (const Trajectory* t : base.all()) {
    EXPECT_EQ(std::count(t->response.tokens.begin(), t->response.tokens.end(), 40), 0) << "a bias of -100";
    const auto length = static_cast<int64_t>(t->response.tokens.size());
    EXPECT_GT(length, 6);
    stopped += t->response.finish == FinishReason::stop;
    early += length < 20;
  }
  EXPECT_GT(stopped, 3);
  EXPECT_GT(early, 0);
  expect_trainer_agrees(*model_, *comm_, base.all(), 9001, 0.7, "penalties");
  expect_score_agrees(*model_, *comm_, base, 0.7);
  expect_same_rollout(roll_out(*model_, work, {.max_running = 7, .chunk = 5, .threads = 2}), base, "chunks");
  const RolloutResult few =
      roll_out(*model_, work, {.max_running = 64, .chunk = 64, .page_tokens = 16, .num_pages = 67});
  expect_same_rollout(few, base, "few pages");
  expect_rows(work, few, true, "few pages");
}

TEST_P(OneNumericsAlone, LongDecodeAcrossBorders) {
  const Workload work = long_workload();
  const RolloutResult base = roll_out(*model_, work, {});
  for (const Trajectory* t : base.all()) EXPECT_EQ(t->response.tokens.size(), 4300u);
  expect_rows(work, base, false, "long");
  expect_score_agrees(*model_, *comm_, base, 1.0);
  // One sequence fits, not two: the younger one is thrown out and prefilled across the borders.
  const RolloutResult few = roll_out(*model_, work, {.chunk = 1000, .num_pages = 300});
  expect_same_rollout(few, base, "long, few pages");
  expect_rows(work, few, true, "long, few pages");
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(OneRank, OneNumericsAlone, ::testing::Values(DType::f32, DType::bf16),
                         dtype_test_name);

}  // namespace temper

int main(int argc, char** argv) { return temper::run_one_numerics(argc, argv, 1); }

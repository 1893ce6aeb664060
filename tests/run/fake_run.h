#pragma once
// A run without a model: ranks hand tiny groups and weights to each other through a real Exchange, by the
// order of calls of the real roles and of the run (src/run/roles.cpp, train_command.cpp), and check what they
// are given. Any rank may be slow.

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/comm/rank_set.h"
#include "src/run/role.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

namespace temper {

struct FakeConfig {
  RoleRanks ranks;
  int64_t lag = 0, steps = 1, groups = 1;
  int64_t stop_after = 0;  // 0: goes on to the last step
  int64_t save_every = 0;  // 0: only when stopped
  uint64_t seed = 0;
  std::map<std::string, double> slow = {};  // role: longest pause before each piece of its work, microseconds

  std::string text() const {
    const auto list = [](const std::vector<int>& r) { return r.empty() ? "none" : rank_set_text(r); };
    std::string line = fmt::format(
        "rollout {} reference {} trainer {} lag {} steps {} groups {} stop {} save {}", list(ranks.producers),
        list(ranks.reference), list(ranks.trainer), lag, steps, groups, stop_after, save_every);
    for (const auto& [role, pause] : slow) line += fmt::format(" {}: {:.0f} us", role, pause);
    return line;
  }
};

/// What a stopped run leaves.
struct FakeCheckpoint {
  int64_t step = 0, produced = 0, lag = 0;
  std::map<int64_t, StepInput> ahead = {};
};

inline void set_weights(ParameterStore& weights, int64_t version) {
  for (Parameter& p : weights.list())
    for (int64_t i = 0; i < p.value.size(); ++i)
      p.value.as<double>()[i] = static_cast<double>(version) + static_cast<double>(p.offset + i) / 1024.0;
}

inline void make_weights(ParameterStore& weights, int64_t version) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{3, 5}, {1}, {7, 2}, {6}})
    weights.add(
        {.name = fmt::format("p{}", weights.list().size()), .parts = {{"hf", shape[0]}}, .shape = shape});
  weights.allocate(DType::f64, false);
  set_weights(weights, version);
}

inline bool weights_are(const ParameterStore& weights, int64_t version) {
  ParameterStore want;
  make_weights(want, version);
  const Tensor a = weights.flat_values(), b = want.flat_values();
  return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

inline Group fake_group(int64_t step, int64_t index, int64_t groups_per_step, int64_t version) {
  Group group;
  for (int32_t sample = 0; sample < 2; ++sample) {
    Trajectory& t = group.samples.emplace_back();
    t.data_position = (step - 1) * groups_per_step + index;
    t.group = static_cast<int32_t>(index);
    t.sample = sample;
    t.prompt_tokens = {static_cast<int32_t>(t.data_position), 7};
    for (int64_t i = 0; i <= t.data_position % 3 + sample; ++i) {
      t.response_tokens.push_back(static_cast<int32_t>(100 * step + i));
      t.logprobs.push_back(-0.1 * static_cast<double>(version + i + 1));
    }
    t.response_mask.assign(t.response_tokens.size(), 1);
    t.policy_versions = {{version, static_cast<int32_t>(t.response_tokens.size())}};
  }
  return group;
}

inline std::vector<double> fake_reference(const Trajectory& t) {
  std::vector<double> logprobs;
  for (int32_t token : t.response_tokens) logprobs.push_back(-1.0 / token);
  return logprobs;
}

class FakeRank {
 public:
  FakeRank(const FakeConfig& config, Mailbox& mailbox, Comm* dp, const FakeCheckpoint& from)
      : config_(config),
        from_(from),
        rank_(mailbox.rank()),
        dp_(dp),
        exchange_(mailbox, config.ranks, config.lag),
        produces_(has(config.ranks.producers)),
        refers_(has(config.ranks.reference)),
        rollout_{config.lag, config.steps, from.produced},
        reference_{produces_ ? config.lag : 0, config.steps, from.produced} {
    make_weights(weights_, dp ? from.step : -1);
  }

  Exchange& exchange() { return exchange_; }

  /// As TrainRun::run_steps: true when the run was stopped.
  bool run() {
    if (!produces_ && !refers_ && !dp_) return false;
    exchange_.start(from_.step, from_.produced, dp_ ? from_.ahead : std::map<int64_t, StepInput>{});
    if (dp_ && from_.step < config_.steps) exchange_.publish_weights(weights_, from_.step);
    for (int64_t step = from_.step + 1; step <= config_.steps; ++step) {
      if (produces_ && !generate(step)) return true;
      if (refers_ && !refer_until(reference_.limit(step))) return true;
      if (!dp_) continue;
      train(step);
      const bool stopped = step == config_.stop_after && step < config_.steps;
      if (!stopped && step < config_.steps) exchange_.publish_weights(weights_, step);
      if (stopped || (config_.save_every > 0 && step % config_.save_every == 0)) save(step);
      if (!stopped) continue;
      exchange_.end_run();
      return true;
    }
    return false;
  }

  /// Trainer ranks: of the last save.
  const FakeCheckpoint& saved() const { return saved_; }

 private:
  bool has(const std::vector<int>& ranks) const {
    return std::find(ranks.begin(), ranks.end(), rank_) != ranks.end();
  }

  void pause(const char* role) {
    const auto slow = config_.slow.find(role);
    if (slow == config_.slow.end()) return;
    const double part = uniform_value(config_.seed, ++pauses_, static_cast<uint32_t>(rank_));
    ::usleep(static_cast<useconds_t>(part * slow->second));
  }

  /// Exactly the version that a step is generated with.
  int64_t version_of(int64_t step) const {
    return step <= from_.produced ? std::max<int64_t>(0, step - 1 - from_.lag)
                                  : std::max(from_.step, step - 1 - config_.lag);
  }

  bool generate(int64_t step) {
    if (!exchange_.receive_weights(weights_, step - 1)) return false;
    EXPECT_TRUE(weights_are(weights_, step - 1)) << "weights of step " << step << ", " << config_.text();
    while (rollout_.done < rollout_.limit(step)) produce(++rollout_.done, step - 1);
    return true;
  }

  void produce(int64_t step, int64_t version) {
    const std::vector<int>& ranks = config_.ranks.producers;
    const Share share{std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin(),
                      static_cast<int64_t>(ranks.size())};
    double mine = 0;
    for (int64_t i = config_.groups - 1; i >= 0; --i) {  // they do not finish in order
      if (!share.has(i)) continue;
      pause("rollout");
      exchange_.send_sampled(step, fake_group(step, i, config_.groups, version));
      ++mine;
    }
    exchange_.close_sampled(step, {.sums = {{"groups", mine}, {"producers", 1}},
                                   .maxima = {{"largest", static_cast<double>(rank_)}},
                                   .data_position = step * config_.groups});
  }

  bool refer_until(int64_t step) {
    while (reference_.done < step)
      if (!refer(++reference_.done)) return false;
    return true;
  }

  bool refer(int64_t step) {
    double mine = 0;
    while (std::optional<Group> first = exchange_.take_sampled(step)) {
      std::vector<Group> groups;
      groups.push_back(std::move(*first));
      while (groups.size() < 3 && exchange_.sampled_waiting(step))
        groups.push_back(*exchange_.take_sampled(step));
      pause("reference");
      for (Group& g : groups) {
        for (Trajectory& t : g.samples) t.ref_logprobs = fake_reference(t);
        exchange_.send_referenced(step, std::move(g));
        ++mine;
      }
    }
    if (exchange_.has_ended()) return false;
    exchange_.close_referenced(step, {.sums = {{"referenced", mine}}, .maxima = {}});
    return true;
  }

  void train(int64_t step) {
    StepInput input = exchange_.receive(step);
    check(step, input);
    pause("trainer");
    dp_->barrier("test: gradients");
    set_weights(weights_, step);
  }

  void check(int64_t step, StepInput& input) const {
    const std::string where = fmt::format("step {} on rank {}, {}", step, rank_, config_.text());
    StepInput want;
    for (int64_t i = 0; i < config_.groups; ++i) {
      want.groups.push_back(fake_group(step, i, config_.groups, version_of(step)));
      if (config_.ranks.reference.empty()) continue;
      for (Trajectory& t : want.groups.back().samples) t.ref_logprobs = fake_reference(t);
    }
    EXPECT_LE(step - 1 - version_of(step), step <= from_.produced ? from_.lag : config_.lag) << where;
    EXPECT_TRUE(step_input_to_bytes({input.groups, {}}) == step_input_to_bytes({want.groups, {}}))
        << "other groups, versions or log-probs than expected: " << input.groups.size() << " groups of "
        << config_.groups << ", " << where;
    EXPECT_EQ(input.note.sums["groups"], static_cast<double>(config_.groups)) << where;
    EXPECT_EQ(input.note.data_position, step * config_.groups) << where;
    if (step <= from_.produced) return;  // by the ranks of another run
    EXPECT_EQ(input.note.sums["producers"], static_cast<double>(config_.ranks.producers.size())) << where;
    EXPECT_EQ(input.note.maxima["largest"], static_cast<double>(config_.ranks.producers.back())) << where;
    EXPECT_EQ(input.note.sums["referenced"],
              config_.ranks.reference.empty() ? 0.0 : static_cast<double>(config_.groups))
        << where;
  }

  void save(int64_t step) {
    saved_ = {step, std::max(std::min(step + config_.lag, config_.steps), from_.produced), config_.lag};
    if (refers_) refer_until(saved_.produced);
    for (int64_t s = step + 1; s <= saved_.produced; ++s)
      saved_.ahead[s] = step_input_from_bytes(step_input_to_bytes(exchange_.peek(s)));
    dp_->barrier("test: checkpoint");
  }

  const FakeConfig& config_;
  const FakeCheckpoint& from_;
  int rank_;
  Comm* dp_;
  Exchange exchange_;
  bool produces_, refers_;
  Lead rollout_, reference_;
  ParameterStore weights_;
  FakeCheckpoint saved_;
  int64_t pauses_ = 0;
};

}  // namespace temper

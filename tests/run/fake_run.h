#pragma once
// A run without a model: ranks hand tiny groups and weights to each other through a real exchange, by the
// order of calls of the real roles and of the run (src/run/roles, src/run/session/session.cpp), and check
// what they are given. Any rank may be slow. A second stage stands for a critic: it gives every response a
// value. With `cut` some prompts are left unfinished by the step that draws them and end in the next one.

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/comm/rank_set.h"
#include "src/ops/backend.h"
#include "src/rl/trajectory_bytes.h"
#include "src/run/roles/role.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

namespace temper {

struct FakeConfig {
  RoleRanks ranks;
  int64_t lag = 0, steps = 1, groups = 1;
  int64_t stop_after = 0;  // 0: goes on to the last step
  int64_t save_every = 0;  // 0: only when stopped
  bool cut = false;
  uint64_t seed = 0;
  std::map<std::string, double> slow = {};  // role: longest pause before each piece of its work, microseconds

  std::string text() const {
    const auto list = [](const std::vector<int>& r) { return r.empty() ? "none" : rank_set_text(r); };
    std::string line = fmt::format("rollout {} trainer {} lag {} steps {} groups {} stop {} save {} cut {}",
                                   list(ranks.producers), list(ranks.trainer), lag, steps, groups, stop_after,
                                   save_every, cut);
    for (const std::vector<int>& stage : ranks.stages) line += " stage " + list(stage);
    for (const auto& [role, pause] : slow) line += fmt::format(" {}: {:.0f} us", role, pause);
    return line;
  }
};

/// What a stopped run leaves.
struct FakeCheckpoint {
  int64_t step = 0, produced = 0, lag = 0;
  std::map<int64_t, StepInput> ahead = {};
  std::vector<Group> unfinished = {};
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

/// The first `tokens` tokens of each response (all: -1), continued from `before` where that is not empty.
inline Group fake_group(int64_t position, int64_t step_drawn, int64_t version, int64_t tokens = -1,
                        const Group& before = {}) {
  Group group = before;
  group.samples.resize(2);
  for (int32_t sample = 0; sample < 2; ++sample) {
    Trajectory& t = group.samples[static_cast<size_t>(sample)];
    t.data_position = position;
    t.sample = sample;
    t.prompt_tokens = {static_cast<int32_t>(position), 7};
    const int64_t length = tokens < 0 ? position % 3 + sample + 1 : tokens;
    const int64_t begun = static_cast<int64_t>(t.response.tokens.size());
    for (int64_t i = begun; i < length; ++i) {
      t.response.tokens.push_back(static_cast<int32_t>(100 * step_drawn + i));
      t.response.logprobs.push_back(-0.1 * static_cast<double>(version + i + 1));
    }
    t.response.mask.assign(t.response.tokens.size(), 1);
    t.response.versions.emplace_back(version, static_cast<int32_t>(length - begun));
    t.response.finish = tokens < 0 ? FinishReason::stop : FinishReason::unfinished;
  }
  return group;
}

inline std::vector<double> fake_reference(const Trajectory& t) {
  std::vector<double> logprobs;
  for (int32_t token : t.response.tokens) logprobs.push_back(-1.0 / token);
  return logprobs;
}

inline double fake_value(const Trajectory& t) {
  return 0.5 * static_cast<double>(t.data_position) + t.sample;
}

/// Weights go whole to every producer that does not train.
inline WeightRoutes whole_copies(const RoleRanks& ranks) {
  const Grid grid{{Axis::dp, static_cast<int>(ranks.trainer.size())}};
  WeightRoutes routes{ranks.trainer, {grid}, {}, ranks.generate_apart()};
  for (const int rank : ranks.producers)
    if (!ranks.trains(rank)) routes.receivers.push_back({rank, {}});
  return routes;
}

class FakeRank {
 public:
  FakeRank(const FakeConfig& config, Mailbox& mailbox, Comm* dp, const FakeCheckpoint& from)
      : config_(config),
        from_(from),
        rank_(mailbox.rank()),
        dp_(dp),
        end_(mailbox, config.ranks),
        groups_(mailbox, config.ranks, config.lag, end_),
        sync_(mailbox, whole_copies(config.ranks), config.lag, end_),
        produces_(has(config.ranks.producers)),
        rollout_{config.lag, config.steps, from.produced},
        unfinished_(from.unfinished) {
    for (const std::vector<int>& ranks : config.ranks.stages)
      stages_.push_back({has(ranks), {produces_ ? config.lag : 0, config.steps, from.produced}});
    make_weights(weights_, dp ? from.step : -1);
  }

  const GroupExchange& groups() const { return groups_; }
  const WeightSync& sync() const { return sync_; }

  /// Runs as run_steps of the session does: true when the run was stopped.
  bool run() {
    const bool idle = !produces_ && !dp_ &&
                      std::none_of(stages_.begin(), stages_.end(), [](const Stage& s) { return s.mine; });
    if (idle) return false;
    groups_.start(from_.step, from_.produced);
    if (dp_)
      for (const auto& [step, input] : from_.ahead) groups_.put_back(step, input);
    groups_.put_back_unfinished(from_.produced, from_.unfinished);
    sync_.start(from_.step);
    if (dp_ && from_.step < config_.steps) sync_.publish(backend_.ctx(), weights_, from_.step);
    for (int64_t step = from_.step + 1; step <= config_.steps; ++step) {
      if (produces_ && !generate(step)) return true;
      for (size_t i = 0; i < stages_.size(); ++i)
        if (stages_[i].mine && !add_until(i, stages_[i].lead.limit(step))) return true;
      if (!dp_) continue;
      train(step);
      const bool stopped = step == config_.stop_after && step < config_.steps;
      if (!stopped && step < config_.steps) sync_.publish(backend_.ctx(), weights_, step);
      if (stopped || (config_.save_every > 0 && step % config_.save_every == 0)) save(step);
      if (!stopped) continue;
      end_.tell();
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
    if (!sync_.receive(backend_.ctx(), weights_, dp_ ? &weights_ : nullptr, step - 1)) return false;
    EXPECT_TRUE(weights_are(weights_, step - 1)) << "weights of step " << step << ", " << config_.text();
    while (rollout_.done < rollout_.limit(step)) produce(++rollout_.done, step - 1);
    return true;
  }

  /// The prompt is left unfinished by the step that draws it.
  bool is_cut(int64_t position) const {
    return config_.cut && position % 4 == 3 && position / config_.groups + 1 < config_.steps;
  }

  void produce(int64_t step, int64_t version) {
    const std::vector<int>& ranks = config_.ranks.producers;
    const Portion portion{std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin(),
                          static_cast<int64_t>(ranks.size())};
    double mine = 0;
    for (size_t i = unfinished_.size(); i-- > 0;) {
      if (!portion.has(static_cast<int64_t>(i))) continue;
      pause("rollout");
      const int64_t position = unfinished_[i].samples.front().data_position;
      groups_.send_sampled(step,
                           fake_group(position, position / config_.groups + 1, version, -1, unfinished_[i]));
      ++mine;
    }
    std::vector<Group> left;
    for (int64_t i = config_.groups - 1; i >= 0; --i) {  // they do not finish in order
      if (!portion.has(i)) continue;
      pause("rollout");
      const int64_t position = (step - 1) * config_.groups + i;
      if (is_cut(position)) {
        left.push_back(fake_group(position, step, version, 1));
        groups_.send_unfinished(step, left.back());
        continue;
      }
      groups_.send_sampled(step, fake_group(position, step, version));
      ++mine;
    }
    unfinished_.clear();
    if (config_.cut)
      for (const std::string& bytes : groups_.gather(groups_to_bytes(left)))
        for (Group& g : groups_from_bytes(bytes)) unfinished_.push_back(std::move(g));
    groups_.close_sampled(step, {.sums = {{"groups", mine}, {"producers", 1}},
                                 .maxima = {{"largest", static_cast<double>(rank_)}},
                                 .data_position = step * config_.groups});
  }

  bool add_until(size_t stage, int64_t step) {
    while (stages_[stage].lead.done < step)
      if (!add(stage, ++stages_[stage].lead.done)) return false;
    return true;
  }

  bool add(size_t stage, int64_t step) {
    double mine = 0;
    while (std::optional<Group> first = groups_.take(stage, step)) {
      std::vector<Group> groups;
      groups.push_back(std::move(*first));
      while (groups.size() < 3 && groups_.waiting(stage, step)) groups.push_back(*groups_.take(stage, step));
      pause(stage == 0 ? "reference" : "critic");
      std::vector<Annotation> annotations;
      for (const Group& g : groups)
        for (const Trajectory& t : g.samples)
          annotations.push_back(
              stage == 0 ? Annotation{t.data_position, t.sample, "ref_logprobs", fake_reference(t)}
                         : Annotation{t.data_position, t.sample, "reward_parts/value", {fake_value(t)}});
      groups_.annotate(stage, step, annotations);
      mine += static_cast<double>(groups.size());
    }
    if (end_.has_come()) return false;
    groups_.close(stage, step, {.sums = {{fmt::format("stage {}", stage), mine}}});
    return true;
  }

  void train(int64_t step) {
    StepInput input = groups_.peek(step);
    groups_.finish(step);
    check(step, input);
    pause("trainer");
    dp_->barrier("test: gradients");
    set_weights(weights_, step);
  }

  void check(int64_t step, StepInput& input) const {
    const std::string where = fmt::format("step {} on rank {}, {}", step, rank_, config_.text());
    StepInput want;
    for (int64_t position = (step - 2) * config_.groups; position < step * config_.groups; ++position) {
      const int64_t drawn = position / config_.groups + 1;
      if (position < 0 || (drawn == step) == is_cut(position)) continue;
      want.groups.push_back(drawn == step ? fake_group(position, drawn, version_of(drawn))
                                          : fake_group(position, drawn, version_of(step), -1,
                                                       fake_group(position, drawn, version_of(drawn), 1)));
      for (Trajectory& t : want.groups.back().samples) {
        t.group = static_cast<int32_t>(want.groups.size()) - 1;
        if (!config_.ranks.stages.empty()) t.ref_logprobs = fake_reference(t);
        if (config_.ranks.stages.size() > 1) t.reward_parts.emplace_back("value", fake_value(t));
      }
    }
    const auto groups = static_cast<double>(want.groups.size());
    EXPECT_LE(step - 1 - version_of(step), step <= from_.produced ? from_.lag : config_.lag) << where;
    EXPECT_TRUE(step_input_to_bytes({input.groups, {}}) == step_input_to_bytes({want.groups, {}}))
        << "other groups, versions or log-probs than expected: " << input.groups.size() << " groups of "
        << want.groups.size() << ", " << where;
    EXPECT_EQ(input.note.sums["groups"], groups) << where;
    EXPECT_EQ(input.note.data_position, step * config_.groups) << where;
    if (step <= from_.produced) return;  // by the ranks of another run
    EXPECT_EQ(input.note.sums["producers"], static_cast<double>(config_.ranks.producers.size())) << where;
    EXPECT_EQ(input.note.maxima["largest"], static_cast<double>(config_.ranks.producers.back())) << where;
    for (size_t i = 0; i < config_.ranks.stages.size(); ++i)
      EXPECT_EQ(input.note.sums[fmt::format("stage {}", i)], groups) << where;
  }

  void save(int64_t step) {
    saved_ = {step, std::max(std::min(step + config_.lag, config_.steps), from_.produced), config_.lag};
    for (size_t i = 0; i < stages_.size(); ++i)
      if (stages_[i].mine) add_until(i, saved_.produced);
    for (int64_t s = step + 1; s <= saved_.produced; ++s)
      saved_.ahead[s] = step_input_from_bytes(step_input_to_bytes(groups_.peek(s)));
    saved_.unfinished = groups_.unfinished_after(saved_.produced);
    for (const Group& g : saved_.unfinished)
      EXPECT_TRUE(is_cut(g.samples.front().data_position)) << config_.text();
    dp_->barrier("test: checkpoint");
  }

  const FakeConfig& config_;
  const FakeCheckpoint& from_;
  int rank_;
  Comm* dp_;
  EndOfRun end_;
  GroupExchange groups_;
  Backend backend_{Device::cpu};
  WeightSync sync_;
  struct Stage {
    bool mine;
    Lead lead;
  };
  bool produces_;
  Lead rollout_;
  std::vector<Group> unfinished_;
  std::vector<Stage> stages_;
  ParameterStore weights_;
  FakeCheckpoint saved_;
  int64_t pauses_ = 0;
};

}  // namespace temper

#pragma once
// Random small runs on 4 ranks: any placement of two to four roles, any policy lag, few or many groups,
// with and without prompts that go on in the next step, some roles slow. Every second one is stopped and goes
// on in another placement, at times with another lag. None waits for ever (the limit of a wait names it);
// what each rank is given is checked by tests/run/fake_run.h. 1,000 of them in four test programs, each of
// which a busy machine finishes in time.

#include "tests/run/fake_run.h"

namespace temper {

inline constexpr int64_t kConfigurations = 250;  // of one program
inline constexpr double kWaitLimit = 20;         // seconds; a run takes some milliseconds

/// Random choices of one configuration.
class Draw {
 public:
  explicit Draw(int64_t index) : index_(index) {}
  int64_t below(int64_t count) {
    return static_cast<int64_t>(uniform_value(4711, index_, ++drawn_) * static_cast<double>(count));
  }
  std::vector<int> ranks() {
    const int64_t set = 1 + below(15);
    std::vector<int> list;
    for (int rank = 0; rank < 4; ++rank)
      if (set >> rank & 1) list.push_back(rank);
    return list;
  }
  RoleRanks placement(size_t num_stages) {
    RoleRanks ranks{this->ranks(), {}, this->ranks()};
    while (ranks.stages.size() < num_stages) ranks.stages.push_back(this->ranks());
    return ranks;
  }

 private:
  int64_t index_;
  uint32_t drawn_ = 0;
};

inline FakeConfig random_config(Draw& draw, int64_t index) {
  FakeConfig c{.ranks = draw.placement(static_cast<size_t>(draw.below(3))),
               .lag = draw.below(4),
               .steps = 2 + draw.below(5),
               .groups = 1 + draw.below(5),
               .save_every = draw.below(3),
               .cut = draw.below(2) == 0,
               .seed = static_cast<uint64_t>(index)};
  for (const char* role : {"rollout", "reference", "critic", "trainer"})
    if (draw.below(2) == 0) c.slow[role] = draw.below(8) == 0 ? 2000.0 : 200.0;
  return c;
}

class RandomPlacements : public OnRanks {
 protected:
  RandomPlacements() {
    for (int set = 1; set < 16; ++set) {
      std::vector<int> ranks;
      for (int rank = 0; rank < 4; ++rank)
        if (set >> rank & 1) ranks.push_back(rank);
      comms_[ranks] = test_world->make_comm(ranks, kWaitLimit);
    }
  }

  /// Configurations `first` and those after it end, with exact versions, within their bounds.
  void expect_right(int64_t first) {
    int64_t runs = 0, stopped = 0, ahead = 0, unfinished = 0;
    for (int64_t index = first; index < first + kConfigurations && !failed(); ++index) {
      Draw draw(index);
      FakeConfig config = random_config(draw, index);
      if (index % 2 == 0) {
        run(config, {});
        ++runs;
        continue;
      }
      config.stop_after = 1 + draw.below(config.steps - 1);
      const FakeCheckpoint left = run(config, {});
      EXPECT_EQ(left.step, config.stop_after) << config.text();
      EXPECT_EQ(left.produced, std::min(left.step + config.lag, config.steps)) << config.text();
      config.ranks = draw.placement(config.ranks.stages.size());
      if (draw.below(4) == 0) config.lag = draw.below(4);
      config.stop_after = 0;
      run(config, left);
      runs += 2;
      ++stopped;
      ahead += left.produced - left.step;
      unfinished += static_cast<int64_t>(left.unfinished.size());
    }
    EXPECT_EQ(comm_->all_reduce_max(static_cast<double>(most_held_), "test: steps held"), 0)
        << "the bound is reached, or the test is too tame";
    if (comm_->rank() == 0)
      std::printf(
          "%ld configurations, %ld runs, %ld stopped with %ld steps ahead and %ld prompts unfinished\n",
          static_cast<long>(kConfigurations), static_cast<long>(runs), static_cast<long>(stopped),
          static_cast<long>(ahead), static_cast<long>(unfinished));
  }

 private:
  /// What a stopped run leaves, on every rank of the world.
  FakeCheckpoint run(const FakeConfig& config, const FakeCheckpoint& from) {
    const std::unique_ptr<Mailbox> mailbox = test_world->make_mailbox(kWaitLimit);
    FakeRank me(config, *mailbox, comms_.at(config.ranks.trainer).get(), from);
    try {
      me.run();
    } catch (const Error&) {
      std::fprintf(stderr, "rank %d, from step %ld: %s\n", comm_->rank(), static_cast<long>(from.step),
                   config.text().c_str());
      throw;
    }
    comm_->barrier("test: end of the run");
    const int64_t bound = std::max(config.lag, from.produced > 0 ? from.lag : 0) + 1;
    EXPECT_LE(me.groups().most_steps_held(), bound) << config.text();
    most_held_ = std::max(most_held_, me.groups().most_steps_held() - bound);
    for (int channel = 1; channel <= 6; ++channel)
      while (const std::optional<Message> left = mailbox->poll(channel))
        // A stop leaves a version that nothing is generated with, and the end told to a rank that had
        // finished.
        EXPECT_TRUE(config.stop_after > 0 && (channel == 3 || channel == 4))
            << "a message of " << left->bytes.size() << " bytes is left on channel " << channel << ", "
            << config.text();
    comm_->barrier("test: nothing is left");
    return shared(me.saved(), config.ranks.trainer.front());
  }

  FakeCheckpoint shared(const FakeCheckpoint& mine, int root) {
    const auto bytes = [&](const std::string& text) {
      return comm_->broadcast(text, root, "test: checkpoint");
    };
    FakeCheckpoint all{std::stoll(bytes(std::to_string(mine.step))),
                       std::stoll(bytes(std::to_string(mine.produced))),
                       std::stoll(bytes(std::to_string(mine.lag)))};
    for (int64_t step = all.step + 1; step <= all.produced; ++step)
      all.ahead[step] = step_input_from_bytes(
          bytes(comm_->rank() == root ? step_input_to_bytes(mine.ahead.at(step)) : std::string()));
    all.unfinished = groups_from_bytes(bytes(groups_to_bytes(mine.unfinished)));
    return all;
  }

  /// It failed on any rank.
  bool failed() { return comm_->all_reduce_max(HasFailure() ? 1 : 0, "test: failures") > 0; }

  std::map<std::vector<int>, std::unique_ptr<Comm>> comms_;
  int64_t most_held_ = -1000;  // steps above the bound
};

}  // namespace temper

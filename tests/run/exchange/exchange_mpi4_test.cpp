// What roles on 4 ranks hand to each other, through MPI: groups come complete, in order and once, notes add
// up, weights are of exactly the version that was asked for, colocated roles move no bytes, the end of a run
// frees whoever waits, a changed message of weights stops the run.

#include "tests/run/fake_run.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

constexpr int kWeightsChannel = 3;

/// Changes one bit of the messages of weights to one rank.
class FlippingMailbox : public Mailbox {
 public:
  FlippingMailbox(Mailbox& inner, int victim) : inner_(inner), victim_(victim) {}
  int rank() const override { return inner_.rank(); }
  void post(int to, int channel, std::string bytes) override {
    if (to == victim_ && channel == kWeightsChannel) {
      bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 4);
      ++flipped;
    }
    inner_.post(to, channel, std::move(bytes));
  }
  void post_shared(int to, int channel, std::shared_ptr<const std::string> bytes) override {
    post(to, channel, *bytes);
  }
  void reuse(std::string memory) override { inner_.reuse(std::move(memory)); }
  std::optional<Message> poll(int channel) override { return inner_.poll(channel); }
  int64_t outgoing_bytes(int channel) override { return inner_.outgoing_bytes(channel); }
  void pause(double waited, const char* what) override { inner_.pause(waited, what); }

  int flipped = 0;

 private:
  Mailbox& inner_;
  int victim_;
};

/// What a rank has of the exchange of a run.
struct Hops {
  Hops(Mailbox& mailbox, const RoleRanks& ranks, int64_t lag, int64_t step = 0)
      : end(mailbox, ranks),
        groups(mailbox, ranks, lag, end),
        weights(mailbox, whole_copies(ranks), lag, end) {
    groups.start(step, step);
    weights.start(step);
  }
  StepInput receive(int64_t step) {
    StepInput input = groups.peek(step);
    groups.finish(step);
    return input;
  }
  EndOfRun end;
  GroupExchange groups;
  WeightSync weights;
  Backend backend{Device::cpu};
};

class ExchangeOnRanks : public OnRanks {
 protected:
  ExchangeOnRanks() : mailbox_(test_world->make_mailbox(kTestWaitLimit)) {}
  int rank() const { return comm_->rank(); }

  std::unique_ptr<Mailbox> mailbox_;
};

struct Placement {
  const char* name;
  RoleRanks ranks;
};
const std::vector<Placement> kPlacements = {
    {"same", {{0, 1, 2, 3}, {{0, 1, 2, 3}}, {0, 1, 2, 3}}},
    {"same, no reference", {{0, 1, 2, 3}, {}, {0, 1, 2, 3}}},
    {"disjoint", {{0}, {{1}}, {2, 3}}},
    {"disjoint, no reference", {{0, 1, 2}, {}, {3}}},
    {"overlapping", {{0, 1, 2}, {{3}}, {1, 3}}},
    {"reference with rollout", {{0, 1}, {{0, 1}}, {2, 3}}},
    {"trainer not first", {{3}, {{0, 1}}, {2}}},
    {"idle rank", {{0}, {}, {2, 3}}},
    {"critic, same", {{0, 1, 2, 3}, {{0, 1, 2, 3}, {0, 1, 2, 3}}, {0, 1, 2, 3}}},
    {"critic, disjoint", {{0}, {{1}, {2}}, {3}}},
    {"critic with trainer", {{0, 1}, {{1}, {2, 3}}, {2, 3}}},
    {"critic, overlapping", {{0, 1, 2}, {{3}, {0, 3}}, {1, 3}}}};

TEST_F(ExchangeOnRanks, GroupsNotesAndWeightsAreThoseOfTheStep) {
  for (const Placement& p : kPlacements) {
    const auto dp = test_world->make_comm(p.ranks.trainer, kTestWaitLimit);
    for (int64_t lag : {0, 1, 2}) {
      const FakeConfig config{
          .ranks = p.ranks, .lag = lag, .steps = 5, .groups = 5, .save_every = 2, .cut = lag != 1};
      const FakeCheckpoint from;
      FakeRank me(config, *mailbox_, dp.get(), from);
      EXPECT_FALSE(me.run()) << p.name;
      comm_->barrier("test: end of the run");
      EXPECT_LE(me.groups().most_steps_held(), lag + 1) << p.name;
      if (dp) {
        EXPECT_GE(me.groups().most_steps_held(), 1) << p.name;
      }
      for (int channel = 1; channel <= 6; ++channel)
        EXPECT_FALSE(mailbox_->poll(channel)) << p.name << ": a message is left on channel " << channel;
      comm_->barrier("test: nothing is left");
    }
  }
}

/// Versions 0 to steps - 1, each once to each rank that generates and does not train.
TEST_F(ExchangeOnRanks, BytesOfWeightsMoveOnlyToRanksThatDoNotTrain) {
  ParameterStore weights;
  make_weights(weights, 0);
  for (const Placement& p : kPlacements) {
    const auto dp = test_world->make_comm(p.ranks.trainer, kTestWaitLimit);
    const FakeConfig config{.ranks = p.ranks, .lag = 1, .steps = 3, .groups = 2};
    const FakeCheckpoint from;
    FakeRank me(config, *mailbox_, dp.get(), from);
    me.run();
    int64_t receivers = 0;
    for (int r : p.ranks.producers)
      receivers += std::count(p.ranks.trainer.begin(), p.ranks.trainer.end(), r) == 0;
    const auto sources = static_cast<int>(p.ranks.trainer.size());
    device::HostWindows windows(Device::cpu);
    Backend backend(Device::cpu);
    const WeightTransfer transfer(weights, {Grid{{Axis::dp, sources}}}, {}, -1, windows);
    int64_t expected = 0;
    for (int source = 0; source < sources; ++source) {
      const auto bytes = static_cast<int64_t>(transfer.message(backend.ctx(), weights, source, 0).size());
      if (dp && dp->rank() == source) expected += config.steps * bytes * receivers;
      if (!dp && std::count(p.ranks.producers.begin(), p.ranks.producers.end(), rank()))
        expected += config.steps * bytes;
    }
    EXPECT_EQ(me.sync().bytes_moved(), expected) << p.name;
    if (receivers == 0) {
      EXPECT_EQ(me.sync().bytes_moved(), 0) << p.name;
    }
    comm_->barrier("test: end of the run");
  }
}

TEST_F(ExchangeOnRanks, AStopIsKnownToTheTrainerAndNotTakenAlong) {
  const RoleRanks ranks{{0, 1}, {{2}}, {3}};
  Hops hops(*mailbox_, ranks, 1);
  for (int64_t step : {1, 2}) {
    if (rank() < 2) {
      hops.groups.send_sampled(step, fake_group(2 * step + rank(), step, 0));
      hops.groups.close_sampled(step, {.sums = {{"half", 0.5}},
                                       .maxima = {{"rank", static_cast<double>(rank())}},
                                       .data_position = 10 * step + rank(),
                                       .stop_requested = rank() == 1 && step == 2});
    }
    while (rank() == 2) {
      std::optional<Group> group = hops.groups.take(0, step);
      if (!group) break;
      for (const Trajectory& t : group->samples)
        hops.groups.annotate(0, step, {{t.data_position, t.sample, "ref_logprobs", fake_reference(t)}});
    }
    if (rank() == 2) hops.groups.close(0, step, {.sums = {{"half", 0.5}}, .maxima = {{"rank", 2}}});
  }
  if (rank() == 3) {
    const StepInput first = hops.receive(1);
    EXPECT_FALSE(first.note.stop_requested);
    EXPECT_EQ(first.note.sums.at("half"), 1.5);
    EXPECT_EQ(first.note.maxima.at("rank"), 2);
    EXPECT_EQ(first.note.data_position, 11);
    EXPECT_EQ(first.groups.size(), 2u);
    EXPECT_TRUE(hops.groups.peek(2).note.stop_requested);
    // As a checkpoint keeps the step: the run that goes on from there was not asked to stop.
    Hops next(*mailbox_, ranks, 1);
    next.groups.start(1, 2);
    next.groups.put_back(2, step_input_from_bytes(step_input_to_bytes(hops.receive(2))));
    const StepInput again = next.receive(2);
    EXPECT_FALSE(again.note.stop_requested);
    EXPECT_EQ(again.note.data_position, 21);
    EXPECT_EQ(again.groups.size(), 2u);
  }
}

TEST_F(ExchangeOnRanks, TheEndOfTheRunFreesRanksThatWait) {
  Hops hops(*mailbox_, {{1, 2}, {{2, 3}}, {0}}, 1, 4);
  ParameterStore weights;
  make_weights(weights, 4);
  if (rank() == 0) {
    ::usleep(3000);
    hops.end.tell();
    return;
  }
  EXPECT_FALSE(rank() == 3 ? hops.groups.take(0, 5).has_value()
                           : hops.weights.receive(hops.backend.ctx(), weights, nullptr, 4));
  EXPECT_TRUE(hops.end.has_come());
  EXPECT_TRUE(weights_are(weights, 4));
}

TEST_F(ExchangeOnRanks, ATrainerMayBeAVersionAheadOfAnother) {
  Hops hops(*mailbox_, {{2, 3}, {}, {0, 1}}, 1);
  ParameterStore weights;
  make_weights(weights, 0);
  if (rank() == 1) ::usleep(20000);
  for (int64_t version = 0; version < 3; ++version) {
    if (rank() < 2) {
      set_weights(weights, version);
      hops.weights.publish(hops.backend.ctx(), weights, version);
    } else {
      EXPECT_TRUE(hops.weights.receive(hops.backend.ctx(), weights, nullptr, version));
      EXPECT_TRUE(weights_are(weights, version)) << version;
    }
  }
}

TEST_F(ExchangeOnRanks, AChangedBitOfTheWeightsStopsTheRun) {
  FlippingMailbox flipping(*mailbox_, 3);
  Mailbox& mailbox = rank() == 1 ? static_cast<Mailbox&>(flipping) : *mailbox_;
  Hops hops(mailbox, {{2, 3}, {}, {0, 1}}, 0, 7);
  ParameterStore weights;
  make_weights(weights, rank() < 2 ? 7 : 0);
  if (rank() < 2) {
    hops.weights.publish(hops.backend.ctx(), weights, 7);
    EXPECT_EQ(flipping.flipped, rank());
  }
  if (rank() == 2) {
    EXPECT_TRUE(hops.weights.receive(hops.backend.ctx(), weights, nullptr, 7));
  }
  if (rank() == 3)
    expect_error(Exit::storage, {"weights were changed on their way"}, "flipped bit",
                 [&] { hops.weights.receive(hops.backend.ctx(), weights, nullptr, 7); });
  if (rank() != 3) {
    EXPECT_TRUE(weights_are(weights, 7));
  }
}

TEST_F(ExchangeOnRanks, AGroupThatComesTwiceOrAStepTooFarAheadIsABug) {
  Hops hops(*mailbox_, {{0, 1}, {}, {2, 3}}, 1);
  if (rank() < 2) {
    hops.groups.send_sampled(1, fake_group(8, 1, 0));
    hops.groups.close_sampled(1, {});
    comm_->barrier("test: looked at");
    if (rank() == 0) hops.groups.send_sampled(3, fake_group(9, 3, 0));
    return;
  }
  expect_error(Exit::internal, {"prompt 8 came twice in step 1"}, "group sent twice",
               [&] { hops.receive(1); });
  comm_->barrier("test: looked at");
  expect_error(Exit::internal, {"groups of step 3 came while step 1 is under way"}, "beyond the lag",
               [&] { hops.receive(2); });
}

/// A note counts the groups that its sender sent.
TEST_F(ExchangeOnRanks, AGroupThatIsLostIsABug) {
  class LosingMailbox : public FlippingMailbox {
   public:
    using FlippingMailbox::FlippingMailbox;
    void post(int to, int channel, std::string bytes) override {
      if (to == 2 && ++posted_ == 1) return;
      FlippingMailbox::post(to, channel, std::move(bytes));
    }

   private:
    int posted_ = 0;
  } losing(*mailbox_, -1);
  Hops hops(losing, {{0}, {}, {2, 3}}, 0);
  if (rank() == 0) {
    hops.groups.send_sampled(1, fake_group(8, 1, 0));
    hops.groups.send_sampled(1, fake_group(9, 1, 0));
    hops.groups.close_sampled(1, {});
  }
  if (rank() == 2)
    expect_error(Exit::internal, {"step 1 has 1 groups and 0 annotations, 2 and 0 were sent"}, "group lost",
                 [&] { hops.receive(1); });
  if (rank() == 3) {
    EXPECT_EQ(hops.receive(1).groups.size(), 2u);
  }
}

/// Counts what goes to the trainer; loses the message with this number.
class CountingMailbox : public FlippingMailbox {
 public:
  CountingMailbox(Mailbox& inner, int lost) : FlippingMailbox(inner, -1), lost_(lost) {}
  void post(int to, int channel, std::string bytes) override {
    if (channel == kWholeSteps) sent += static_cast<int64_t>(bytes.size());
    if (channel == kWholeSteps && ++posted_ == lost_) return;
    FlippingMailbox::post(to, channel, std::move(bytes));
  }
  int64_t sent = 0;

 private:
  int lost_, posted_ = 0;
};

/// Rank 0 makes a group, rank 1 adds to it, rank 2 gets both.
TEST_F(ExchangeOnRanks, AStageSendsWhatItAddsAndNoGroups) {
  CountingMailbox counting(*mailbox_, 0);
  Hops hops(counting, {{0}, {{1}}, {2}}, 0);
  Group group = fake_group(8, 1, 0);
  for (Trajectory& t : group.samples) t.prompt = std::string(5000, 'p');
  if (rank() == 0) {
    hops.groups.send_sampled(1, group);
    hops.groups.close_sampled(1, {});
    EXPECT_GT(counting.sent, 10000);
  }
  if (rank() == 1) {
    std::vector<Annotation> added;
    while (const std::optional<Group> come = hops.groups.take(0, 1))
      for (const Trajectory& t : come->samples) {
        added.push_back({t.data_position, t.sample, "ref_logprobs", fake_reference(t)});
        added.push_back({t.data_position, t.sample, "reward_parts/value", {0.25}});
      }
    hops.groups.annotate(0, 1, added);
    hops.groups.close(0, 1, {});
    EXPECT_LT(counting.sent, 1000);
  }
  if (rank() != 2) return;
  const StepInput input = hops.receive(1);
  ASSERT_EQ(input.groups.size(), 1u);
  for (const Trajectory& t : input.groups[0].samples) {
    EXPECT_EQ(t.prompt.size(), 5000u);
    EXPECT_EQ(t.ref_logprobs, fake_reference(t));
    EXPECT_EQ(t.reward_parts, (std::vector<std::pair<std::string, double>>{{"value", 0.25}}));
  }
}

TEST_F(ExchangeOnRanks, AnAnnotationThatIsLostOrMeansNothingIsABug) {
  struct Case {
    std::vector<Annotation> added;
    int lost;
    const char* why;
  };
  const std::vector<double> one{1.0}, three{1, 2, 3};
  const std::vector<Case> cases = {
      {{{6, 0, "ref_logprobs", one}}, 1, "step 1 has 1 groups and 0 annotations, 1 and 1 were sent"},
      {{{6, 0, "ref_logprobs", one}, {6, 0, "ref_logprobs", one}},
       0,
       "ref_logprobs of prompt 6, sample 0 came twice"},
      {{{6, 0, "ref_logprobs", three}}, 0, "3 reference log-probs of 1 tokens"},
      {{{6, 1, "reward_parts/value", three}}, 0, "3 values of the reward part value"},
      {{{6, 1, "values", one}}, 0, "prompt 6 is annotated with values, which no trajectory has"},
      {{{7, 0, "ref_logprobs", one}}, 0, "prompt 7 is annotated and did not come in step 1"}};
  for (const Case& c : cases) {
    CountingMailbox counting(*mailbox_, rank() == 1 ? c.lost : 0);
    Hops hops(counting, {{0}, {{1}}, {2}}, 0);
    if (rank() == 0) {
      hops.groups.send_sampled(1, fake_group(6, 1, 0));
      hops.groups.close_sampled(1, {});
    }
    if (rank() == 1) {
      while (hops.groups.take(0, 1)) {
      }
      hops.groups.annotate(0, 1, c.added);
      hops.groups.close(0, 1, {});
    }
    if (rank() == 2) expect_error(Exit::internal, {c.why}, "annotation", [&] { hops.receive(1); });
    comm_->barrier("test: looked at");
  }
}

TEST_F(ExchangeOnRanks, ProducersShareInOrderOfRank) {
  Hops hops(*mailbox_, {{0, 2, 3}, {}, {1}}, 0);
  if (rank() == 1) return;
  for (int call = 0; call < 5; ++call) {
    if (rank() == call % 4) ::usleep(2000);  // another may be a call ahead
    const std::vector<std::string> all = hops.groups.share(fmt::format("{}\n of {}", call, rank()));
    EXPECT_EQ(all, (std::vector<std::string>{fmt::format("{}\n of 0", call), fmt::format("{}\n of 2", call),
                                             fmt::format("{}\n of 3", call)}));
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }

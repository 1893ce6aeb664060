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
  std::optional<Message> poll(int channel) override { return inner_.poll(channel); }
  int64_t outgoing_bytes(int channel) override { return inner_.outgoing_bytes(channel); }
  void pause(double waited, const char* what) override { inner_.pause(waited, what); }

  int flipped = 0;

 private:
  Mailbox& inner_;
  int victim_;
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
      EXPECT_LE(me.exchange().most_steps_held(), lag + 1) << p.name;
      if (dp) {
        EXPECT_GE(me.exchange().most_steps_held(), 1) << p.name;
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
    const WeightTransfer transfer(weights, sources);
    int64_t expected = 0;
    for (int source = 0; source < sources; ++source) {
      const auto bytes = static_cast<int64_t>(transfer.message(weights, source, 0).size());
      if (dp && dp->rank() == source) expected += config.steps * bytes * receivers;
      if (!dp && std::count(p.ranks.producers.begin(), p.ranks.producers.end(), rank()))
        expected += config.steps * bytes;
    }
    EXPECT_EQ(me.exchange().weight_bytes_moved(), expected) << p.name;
    if (receivers == 0) {
      EXPECT_EQ(me.exchange().weight_bytes_moved(), 0) << p.name;
    }
    comm_->barrier("test: end of the run");
  }
}

TEST_F(ExchangeOnRanks, AStopIsKnownToTheTrainerAndNotTakenAlong) {
  const RoleRanks ranks{{0, 1}, {{2}}, {3}};
  Exchange exchange(*mailbox_, ranks, 1);
  exchange.start(0, 0, {}, {});
  for (int64_t step : {1, 2}) {
    if (rank() < 2) {
      exchange.send_sampled(step, fake_group(2 * step + rank(), step, 0));
      exchange.close_sampled(step, {.sums = {{"half", 0.5}},
                                    .maxima = {{"rank", static_cast<double>(rank())}},
                                    .data_position = 10 * step + rank(),
                                    .stop_requested = rank() == 1 && step == 2});
    }
    while (rank() == 2) {
      std::optional<Group> group = exchange.take(0, step);
      if (!group) break;
      exchange.pass_on(0, step, std::move(*group));
    }
    if (rank() == 2) exchange.close(step, {.sums = {{"half", 0.5}}, .maxima = {{"rank", 2}}});
  }
  if (rank() == 3) {
    const StepInput first = exchange.receive(1);
    EXPECT_FALSE(first.note.stop_requested);
    EXPECT_EQ(first.note.sums.at("half"), 1.5);
    EXPECT_EQ(first.note.maxima.at("rank"), 2);
    EXPECT_EQ(first.note.data_position, 11);
    EXPECT_EQ(first.groups.size(), 2u);
    EXPECT_TRUE(exchange.peek(2).note.stop_requested);
    // As a checkpoint keeps the step: the run that goes on from there was not asked to stop.
    Exchange next(*mailbox_, ranks, 1);
    next.start(1, 2, {{2, step_input_from_bytes(step_input_to_bytes(exchange.receive(2)))}}, {});
    const StepInput again = next.receive(2);
    EXPECT_FALSE(again.note.stop_requested);
    EXPECT_EQ(again.note.data_position, 21);
    EXPECT_EQ(again.groups.size(), 2u);
  }
}

TEST_F(ExchangeOnRanks, TheEndOfTheRunFreesRanksThatWait) {
  Exchange exchange(*mailbox_, {{1, 2}, {{2, 3}}, {0}}, 1);
  ParameterStore weights;
  make_weights(weights, 4);
  exchange.start(4, 4, {}, {});
  if (rank() == 0) {
    ::usleep(3000);
    exchange.end_run();
    return;
  }
  EXPECT_FALSE(rank() == 3 ? exchange.take(0, 5).has_value() : exchange.receive_weights(weights, 4));
  EXPECT_TRUE(exchange.has_ended());
  EXPECT_TRUE(weights_are(weights, 4));
}

TEST_F(ExchangeOnRanks, ATrainerMayBeAVersionAheadOfAnother) {
  Exchange exchange(*mailbox_, {{2, 3}, {}, {0, 1}}, 1);
  ParameterStore weights;
  make_weights(weights, 0);
  exchange.start(0, 0, {}, {});
  if (rank() == 1) ::usleep(20000);
  for (int64_t version = 0; version < 3; ++version) {
    if (rank() < 2) {
      set_weights(weights, version);
      exchange.publish_weights(weights, version);
    } else {
      EXPECT_TRUE(exchange.receive_weights(weights, version));
      EXPECT_TRUE(weights_are(weights, version)) << version;
    }
  }
}

TEST_F(ExchangeOnRanks, AChangedBitOfTheWeightsStopsTheRun) {
  FlippingMailbox flipping(*mailbox_, 3);
  Mailbox& mailbox = rank() == 1 ? static_cast<Mailbox&>(flipping) : *mailbox_;
  Exchange exchange(mailbox, {{2, 3}, {}, {0, 1}}, 0);
  ParameterStore weights;
  make_weights(weights, rank() < 2 ? 7 : 0);
  exchange.start(7, 7, {}, {});
  if (rank() < 2) {
    exchange.publish_weights(weights, 7);
    EXPECT_EQ(flipping.flipped, rank());
  }
  if (rank() == 2) {
    EXPECT_TRUE(exchange.receive_weights(weights, 7));
  }
  if (rank() == 3)
    expect_error(Exit::storage, {"weights were changed on their way"}, "flipped bit",
                 [&] { exchange.receive_weights(weights, 7); });
  if (rank() != 3) {
    EXPECT_TRUE(weights_are(weights, 7));
  }
}

TEST_F(ExchangeOnRanks, AGroupThatComesTwiceOrAStepTooFarAheadIsABug) {
  Exchange exchange(*mailbox_, {{0, 1}, {}, {2, 3}}, 1);
  exchange.start(0, 0, {}, {});
  if (rank() < 2) {
    exchange.send_sampled(1, fake_group(8, 1, 0));
    exchange.close_sampled(1, {});
    comm_->barrier("test: looked at");
    if (rank() == 0) exchange.send_sampled(3, fake_group(9, 3, 0));
    return;
  }
  expect_error(Exit::internal, {"prompt 8 came twice in step 1"}, "group sent twice",
               [&] { exchange.receive(1); });
  comm_->barrier("test: looked at");
  expect_error(Exit::internal, {"groups of step 3 came while step 1 is under way"}, "beyond the lag",
               [&] { exchange.receive(2); });
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
  Exchange exchange(losing, {{0}, {}, {2, 3}}, 0);
  exchange.start(0, 0, {}, {});
  if (rank() == 0) {
    exchange.send_sampled(1, fake_group(8, 1, 0));
    exchange.send_sampled(1, fake_group(9, 1, 0));
    exchange.close_sampled(1, {});
  }
  if (rank() == 2)
    expect_error(Exit::internal, {"step 1 has 1 groups in 1 parts, 2 groups were sent"}, "group lost",
                 [&] { exchange.receive(1); });
  if (rank() == 3) {
    EXPECT_EQ(exchange.receive(1).groups.size(), 2u);
  }
}

TEST_F(ExchangeOnRanks, ProducersShareInOrderOfRank) {
  Exchange exchange(*mailbox_, {{0, 2, 3}, {}, {1}}, 0);
  if (rank() == 1) return;
  for (int call = 0; call < 5; ++call) {
    if (rank() == call % 4) ::usleep(2000);  // another may be a call ahead
    const std::vector<std::string> all = exchange.share(fmt::format("{}\n of {}", call, rank()));
    EXPECT_EQ(all, (std::vector<std::string>{fmt::format("{}\n of 0", call), fmt::format("{}\n of 2", call),
                                             fmt::format("{}\n of 3", call)}));
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 4); }

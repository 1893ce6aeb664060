// The mailbox on 3 ranks: order per sender and channel, messages to oneself, without content and of more than
// one part; what is under way; a wait that ends at its limit.

#include "src/core/stopwatch.h"
#include "tests/support/expect_error.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

class MailboxOnRanks : public OnRanks {
 protected:
  MailboxOnRanks() : mailbox_(test_world->make_mailbox(kTestWaitLimit)) {}

  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  Message next(int channel) {
    const Stopwatch waited;
    for (;;) {
      if (std::optional<Message> message = mailbox_->poll(channel)) return std::move(*message);
      mailbox_->pause(waited.seconds(), "test: message");
    }
  }
  void wait_until_taken(int channel) {
    const Stopwatch waited;
    while (mailbox_->outgoing_bytes(channel) > 0) mailbox_->pause(waited.seconds(), "test: message taken");
  }

  std::unique_ptr<Mailbox> mailbox_;
};

/// Every fifth has no content; some are larger than what MPI sends before the receiver asks for it.
std::string content(int from, int to, int channel, int number) {
  if (number % 5 == 2) return "";
  std::string text = fmt::format("{} to {}, channel {}, number {};", from, to, channel, number);
  text.resize(number % 7 == 3 ? 300001 : text.size() + static_cast<size_t>(number),
              static_cast<char>(number));
  return text;
}

TEST_F(MailboxOnRanks, KeepsTheOrderOfEachSenderAndChannel) {
  constexpr int kMessages = 40;
  const std::vector<int> channels = {1, 2, 9};
  for (int number = 0; number < kMessages; ++number)
    for (int channel : channels)
      for (int to = 0; to < size(); ++to) mailbox_->post(to, channel, content(rank(), to, channel, number));
  for (int channel : {9, 1, 2}) {  // not the order of posting
    std::vector<int> come(static_cast<size_t>(size()));
    for (int i = 0; i < kMessages * size(); ++i) {
      const Message message = next(channel);
      ASSERT_TRUE(message.from >= 0 && message.from < size()) << message.from;
      const int number = come[static_cast<size_t>(message.from)]++;
      ASSERT_TRUE(message.bytes == content(message.from, rank(), channel, number))
          << "number " << number << " from " << message.from << " on channel " << channel << " has "
          << message.bytes.size() << " bytes: " << message.bytes.substr(0, 60);
    }
    EXPECT_EQ(come, std::vector<int>(come.size(), kMessages));
  }
  for (int channel : channels) wait_until_taken(channel);
  comm_->barrier("test: all taken");
  for (int channel : channels) EXPECT_FALSE(mailbox_->poll(channel)) << "a message came twice";
}

TEST_F(MailboxOnRanks, AMessageStaysOnItsChannel) {
  const int to = (rank() + 1) % size();
  mailbox_->post(to, 4, "four");
  mailbox_->post(rank(), 4, "to myself");
  comm_->barrier("test: all posted");
  for (int i = 0; i < 20; ++i) {
    ASSERT_FALSE(mailbox_->poll(3));
    mailbox_->pause(0, "test: nothing");
  }
  std::vector<std::string> come = {next(4).bytes, next(4).bytes};
  std::sort(come.begin(), come.end());
  EXPECT_EQ(come, (std::vector<std::string>{"four", "to myself"}));
}

/// The sender writes to it again when it alone has it; the second message, which is shorter, comes into the
/// memory of the first.
TEST_F(MailboxOnRanks, SeveralGetTheSameMemoryAndGiveTheirsForTheNext) {
  constexpr int kChannel = 6;
  constexpr size_t kSize = (size_t{24} << 20) + 5;
  const auto text = [](size_t round) {
    std::string bytes(kSize - round * 1000, '\0');
    for (size_t i = 0; i < bytes.size(); i += 977) bytes[i] = static_cast<char>(i + round);
    return bytes;
  };
  const auto memory = std::make_shared<std::string>();
  const char* place = nullptr;
  for (const size_t round : {0, 1, 2}) {
    if (rank() == 0) {
      EXPECT_EQ(memory.use_count(), 1);
      *memory = text(round);
      mailbox_->post_shared(1, kChannel, memory);
      mailbox_->post_shared(2, kChannel, memory);
      wait_until_taken(kChannel);
      continue;
    }
    Message message = next(kChannel);
    EXPECT_TRUE(message.bytes == text(round)) << round;
    if (round > 0) {
      EXPECT_EQ(static_cast<const void*>(message.bytes.data()), place) << round;
    }
    place = message.bytes.data();
    mailbox_->reuse(std::move(message.bytes));
  }
}

TEST_F(MailboxOnRanks, ALargeMessageIsUnderWayUntilItIsTaken) {
  const int64_t size_of_it = (int64_t{64} << 20) + 77;
  if (rank() == 2) {
    std::string large(static_cast<size_t>(size_of_it), '\0');
    for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 + i / 251);
    mailbox_->post(0, 5, std::move(large));
    mailbox_->post(0, 5, "after it");
    EXPECT_GE(mailbox_->outgoing_bytes(5), size_of_it);
    EXPECT_EQ(mailbox_->outgoing_bytes(6), 0);
  }
  comm_->barrier("test: large message posted");
  if (rank() == 0) {
    const Message message = next(5);
    EXPECT_EQ(message.from, 2);
    ASSERT_EQ(message.bytes.size(), static_cast<size_t>(size_of_it));
    int64_t wrong = 0;
    for (size_t i = 0; i < message.bytes.size(); ++i)
      wrong += message.bytes[i] != static_cast<char>(i * 31 + i / 251);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(next(5).bytes, "after it");
  }
  wait_until_taken(5);
  EXPECT_EQ(mailbox_->outgoing_bytes(5), 0);
}

TEST_F(MailboxOnRanks, AWaitEndsAtItsLimitAndIsNamed) {
  const std::unique_ptr<Mailbox> impatient = test_world->make_mailbox(0.05);
  expect_error(Exit::hang,
               {fmt::format("rank {} waits too long in 'test: nobody sends'", rank()), "watchdog"},
               "wait for a message", [&] {
                 const Stopwatch waited;
                 while (!impatient->poll(1)) impatient->pause(waited.seconds(), "test: nobody sends");
               });
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 3); }

#include "src/comm/alone/one_rank.h"

#include <unistd.h>

#include <deque>
#include <map>
#include <utility>

#include "src/comm/mpi_check.h"
#include "src/core/check.h"

namespace temper {
namespace {

class NoTransport : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const char* carrier() const override { return "nothing"; }
  void exchange(Lane&, std::span<const Parcel> out, std::span<const Parcel> in, const char* what) override {
    CHECK(out.empty() && in.empty(), "{}: a parcel for another rank than the only one", what);
    note_progress();
  }
};

class OwnMailbox : public Mailbox {
 public:
  explicit OwnMailbox(double limit_seconds) : limit_seconds_(limit_seconds) {}
  int rank() const override { return 0; }
  void post(int to, int channel, std::string bytes) override {
    CHECK(to == 0, "a message to rank {} of one rank", to);
    messages_[channel].push_back(std::move(bytes));
  }
  void post_shared(int to, int channel, std::shared_ptr<const std::string> bytes) override {
    post(to, channel, *bytes);
  }
  std::optional<Message> poll(int channel) override {
    std::deque<std::string>& waiting = messages_[channel];
    if (waiting.empty()) return std::nullopt;
    note_progress();
    Message message{0, std::move(waiting.front())};
    waiting.pop_front();
    return message;
  }
  void reuse(std::string) override {}
  int64_t outgoing_bytes(int) override { return 0; }
  void pause(double waited_seconds, const char* what) override {
    if (waited_seconds > limit_seconds_) fail_hang(0, what, "a message", waited_seconds, limit_seconds_);
    note_wait(what, "a message");
    ::usleep(waited_seconds < 0.01 ? 20 : 200);
  }

 private:
  double limit_seconds_;
  std::map<int, std::deque<std::string>> messages_;
};

}  // namespace

std::unique_ptr<Collectives> collectives_of_one() {
  return std::make_unique<Collectives>(std::make_unique<NoTransport>());
}

std::unique_ptr<Mailbox> mailbox_of_one(double wait_limit_seconds) {
  return std::make_unique<OwnMailbox>(wait_limit_seconds);
}

}  // namespace temper

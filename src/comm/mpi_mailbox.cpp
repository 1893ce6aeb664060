#define OMPI_SKIP_MPICXX 1  // the removed C++ bindings do not compile without warnings
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "src/comm/alone/one_rank.h"
#include "src/comm/mpi_check.h"
#include "src/comm/mpi_comm.h"
#include "src/core/process/progress.h"
#include "src/core/stopwatch.h"

namespace temper {
namespace {

constexpr size_t kPartBytes = size_t{8} << 20;  // MPI counts stay far below 2^31
/// Within a host a message moves a little at every look of either side: while parts of one arrive no look is
/// put off by a sleep.
constexpr double kMovingSeconds = 0.1;
/// The first part: the length of the whole message and as many of its bytes.
constexpr size_t kHeader = sizeof(uint64_t), kFirst = 4096;

/// A message that MPI is still reading from.
struct Outgoing {
  int channel = 0;
  std::string first = {};
  std::shared_ptr<const std::string> bytes = {};
  std::vector<MPI_Request> parts = {};
  size_t sent = 0;  // of the parts, from the first on
};

class MpiMailbox : public Mailbox {
 public:
  MpiMailbox(MPI_Comm comm, double limit_seconds) : comm_(comm), limit_seconds_(limit_seconds) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
  }
  ~MpiMailbox() override {
    // Left in order nothing is under way. Left by an exception the job ends soon, and MPI goes on reading.
    int finished = 1;
    for (Outgoing& out : outgoing_)
      if (finished)
        MPI_Testall(static_cast<int>(out.parts.size()), out.parts.data(), &finished, MPI_STATUSES_IGNORE);
    if (finished)
      MPI_Comm_free(&comm_);
    else
      new std::list<Outgoing>(std::move(outgoing_));
  }

  int rank() const override { return rank_; }

  void post(int to, int channel, std::string bytes) override {
    if (to == rank_)
      own_[channel].push_back(std::move(bytes));
    else
      post_shared(to, channel, std::make_shared<const std::string>(std::move(bytes)));
  }

  void post_shared(int to, int channel, std::shared_ptr<const std::string> bytes) override {
    if (to == rank_) return own_[channel].push_back(*bytes);
    Outgoing& out = outgoing_.emplace_back();
    out.channel = channel;
    out.bytes = std::move(bytes);
    const uint64_t size = out.bytes->size();
    out.first.assign(reinterpret_cast<const char*>(&size), kHeader).append(*out.bytes, 0, kFirst);
    const auto send = [&](const char* data, size_t count) {
      check_mpi(
          MPI_Isend(data, static_cast<int>(count), MPI_BYTE, to, channel, comm_, &out.parts.emplace_back()),
          "MPI_Isend");
    };
    send(out.first.data(), out.first.size());
    for (size_t at = kFirst; at < size; at += kPartBytes)
      send(out.bytes->data() + at, std::min(kPartBytes, size - at));
  }

  std::optional<Message> poll(int channel) override {
    free_sent();
    if (auto& mine = own_[channel]; !mine.empty()) {
      note_progress();
      Message message{rank_, std::move(mine.front())};
      mine.pop_front();
      return message;
    }
    int found = 0;
    MPI_Message handle;
    MPI_Status status;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, channel, comm_, &found, &handle, &status), "MPI_Improbe");
    if (!found) return std::nullopt;
    note_progress();
    return receive(handle, status, channel);
  }

  int64_t outgoing_bytes(int channel) override {
    free_sent();
    int64_t bytes = 0;
    for (const Outgoing& out : outgoing_)
      if (out.channel == channel) bytes += static_cast<int64_t>(kHeader + out.bytes->size());
    return bytes;
  }

  void reuse(std::string memory) override {
    if (memory.capacity() >= std::max(kPartBytes, spare_.capacity())) spare_ = std::move(memory);
  }

  void pause(double waited_seconds, const char* what) override {
    if (waited_seconds > limit_seconds_) fail_hang(rank_, what, "a message", waited_seconds, limit_seconds_);
    note_wait(what, "a message");
    if (!outgoing_.empty() && since_part_.seconds() < kMovingSeconds)
      ::sched_yield();
    else
      ::usleep(waited_seconds < 0.01 ? 20 : 200);
  }

 private:
  void free_sent() {
    for (auto out = outgoing_.begin(); out != outgoing_.end();) {
      for (; out->sent < out->parts.size(); ++out->sent) {
        int done = 0;
        check_mpi(MPI_Test(&out->parts[out->sent], &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (!done) break;
        since_part_ = Stopwatch();
      }
      out = out->sent == out->parts.size() ? outgoing_.erase(out) : std::next(out);
    }
  }

  /// Its sender is at work on it, or has died.
  void wait(MPI_Request& request) {
    const Stopwatch waited;
    for (int done = 0; !done;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return;
      if (waited.seconds() > kMovingSeconds)
        pause(waited.seconds(), "the rest of a message");
      else
        ::sched_yield();
    }
  }

  /// The first part is matched; the others of this sender and channel follow it directly.
  Message receive(MPI_Message handle, const MPI_Status& status, int channel) {
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    std::string first(static_cast<size_t>(count), '\0');
    MPI_Request request;
    check_mpi(MPI_Imrecv(first.data(), count, MPI_BYTE, &handle, &request), "MPI_Imrecv");
    wait(request);
    uint64_t size = 0;
    CHECK(first.size() >= kHeader, "a message of {} bytes", first.size());
    std::memcpy(&size, first.data(), kHeader);
    first.erase(0, kHeader);
    if (first.size() == size) return {status.MPI_SOURCE, std::move(first)};
    Message message{status.MPI_SOURCE, memory_of(size)};
    std::copy(first.begin(), first.end(), message.bytes.begin());
    for (size_t at = first.size(); at < size; at += kPartBytes) {
      check_mpi(MPI_Irecv(message.bytes.data() + at, static_cast<int>(std::min(kPartBytes, size - at)),
                          MPI_BYTE, message.from, channel, comm_, &request),
                "MPI_Irecv");
      wait(request);
    }
    return message;
  }
  /// [size], of whatever was there.
  std::string memory_of(size_t size) {
    std::string memory;
    if (spare_.capacity() >= size && size > kPartBytes / 2) memory.swap(spare_);
    memory.resize(size);
    return memory;
  }

  MPI_Comm comm_;
  double limit_seconds_;
  int rank_ = 0;
  std::list<Outgoing> outgoing_;
  Stopwatch since_part_;  // of a message of this rank arrived
  std::string spare_;     // memory of messages that were taken
  std::map<int, std::deque<std::string>> own_;
};

}  // namespace

std::unique_ptr<Mailbox> MpiSession::make_mailbox(double wait_limit_seconds) const {
  if (!farewell_) return mailbox_of_one(wait_limit_seconds);
  MPI_Comm comm = MPI_COMM_NULL;
  note_wait("MPI_Comm_dup", "all ranks");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  note_progress();
  return std::make_unique<MpiMailbox>(comm, wait_limit_seconds);
}

}  // namespace temper

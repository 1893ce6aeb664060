#define OMPI_SKIP_MPICXX 1  // the removed C++ bindings do not compile without warnings
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <vector>

#include "src/comm/mpi_check.h"
#include "src/comm/mpi_comm.h"
#include "src/core/process/progress.h"
#include "src/core/stopwatch.h"

namespace temper {
namespace {

constexpr size_t kPartBytes = size_t{64} << 20;  // MPI counts stay far below 2^31
constexpr size_t kHeader = sizeof(uint64_t);     // the length of the whole message, before its first part

/// A message that MPI is still reading from.
struct Outgoing {
  int channel = 0;
  std::string bytes;
  std::vector<MPI_Request> parts;
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
    if (to == rank_) {
      own_[channel].push_back(std::move(bytes));
      return;
    }
    Outgoing& out = outgoing_.emplace_back();
    out.channel = channel;
    out.bytes.resize(kHeader + bytes.size());
    const uint64_t size = bytes.size();
    std::memcpy(out.bytes.data(), &size, kHeader);
    std::copy(bytes.begin(), bytes.end(), out.bytes.begin() + kHeader);
    for (size_t at = 0; at < out.bytes.size(); at += kPartBytes) {
      const size_t part = std::min(kPartBytes, out.bytes.size() - at);
      check_mpi(MPI_Isend(out.bytes.data() + at, static_cast<int>(part), MPI_BYTE, to, channel, comm_,
                          &out.parts.emplace_back()),
                "MPI_Isend");
    }
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
      if (out.channel == channel) bytes += static_cast<int64_t>(out.bytes.size());
    return bytes;
  }

  void pause(double waited_seconds, const char* what) override {
    if (waited_seconds > limit_seconds_) fail_hang(rank_, what, "a message", waited_seconds, limit_seconds_);
    note_wait(what, "a message");
    ::usleep(waited_seconds < 0.01 ? 20 : 200);
  }

 private:
  void free_sent() {
    for (auto out = outgoing_.begin(); out != outgoing_.end();) {
      int done = 0;
      check_mpi(
          MPI_Testall(static_cast<int>(out->parts.size()), out->parts.data(), &done, MPI_STATUSES_IGNORE),
          "MPI_Testall");
      out = done ? outgoing_.erase(out) : std::next(out);
    }
  }

  /// Its sender is at work on it, or has died.
  void wait(MPI_Request& request) {
    constexpr double kSpinSeconds = 0.01;
    const Stopwatch waited;
    for (int done = 0; !done;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (!done && waited.seconds() > kSpinSeconds) pause(waited.seconds(), "the rest of a message");
    }
  }

  /// The first part is matched; the others of this sender and channel follow it directly.
  Message receive(MPI_Message handle, const MPI_Status& status, int channel) {
    int first = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &first), "MPI_Get_count");
    std::string part(static_cast<size_t>(first), '\0');
    MPI_Request request;
    check_mpi(MPI_Imrecv(part.data(), first, MPI_BYTE, &handle, &request), "MPI_Imrecv");
    wait(request);
    uint64_t size = 0;
    CHECK(part.size() >= kHeader, "a message of {} bytes", part.size());
    std::memcpy(&size, part.data(), kHeader);
    Message message{status.MPI_SOURCE, part.substr(kHeader)};
    message.bytes.reserve(size);
    while (message.bytes.size() < size) {
      part.resize(std::min(kPartBytes, size - message.bytes.size()));
      check_mpi(MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, message.from, channel, comm_,
                          &request),
                "MPI_Irecv");
      wait(request);
      message.bytes += part;
    }
    return message;
  }

  MPI_Comm comm_;
  double limit_seconds_;
  int rank_ = 0;
  std::list<Outgoing> outgoing_;
  std::map<int, std::deque<std::string>> own_;
};

}  // namespace

std::unique_ptr<Mailbox> MpiSession::make_mailbox(double wait_limit_seconds) const {
  MPI_Comm comm = MPI_COMM_NULL;
  note_wait("MPI_Comm_dup", "all ranks");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  note_progress();
  return std::make_unique<MpiMailbox>(comm, wait_limit_seconds);
}

}  // namespace temper

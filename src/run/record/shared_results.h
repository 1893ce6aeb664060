#pragma once
// Results of work that is dealt to the ranks of an mpirun: they go to rank 0 as they finish, which writes
// them in input order.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/comm/mpi_comm.h"
#include "src/core/json.h"
#include "src/core/stopwatch.h"
#include "src/run/record/ordered_lines.h"

namespace temper {

class SharedResults {
 public:
  /// All ranks make it. `options`: what there is to do; a file may have the first of it.
  SharedResults(const MpiSession& mpi, Comm& comm, double wait_seconds, OrderedLines::Options options)
      : comm_(comm), mailbox_(mpi.make_mailbox(wait_seconds)) {
    if (comm_.rank() == 0) lines_.emplace(std::move(options));
    const std::string begun = lines_ ? std::to_string(lines_->begun()) : "";
    begun_ = std::stoull(comm_.broadcast(begun, 0, "results that are there, of rank 0"));
  }
  /// Items that the file had.
  size_t begun() const { return begun_; }
  /// Dealt to this rank, and not done before.
  bool mine(size_t item) const {
    return item >= begun_ && static_cast<int>(item % static_cast<size_t>(comm_.size())) == comm_.rank();
  }
  /// The lines of an item of this rank, each with its end.
  void put(size_t item, std::string text) {
    if (!lines_) return mailbox_->post(0, kResults, Json::array({item, std::move(text)}).dump());
    lines_->put(item, std::move(text));
    take();
  }
  /// All results of all ranks are written.
  void finish() {
    for (const Stopwatch waited; lines_ && !lines_->complete(); take())
      mailbox_->pause(waited.seconds(), "results of the other ranks");
    for (const Stopwatch waited; !lines_ && mailbox_->outgoing_bytes(kResults) > 0;)
      mailbox_->pause(waited.seconds(), "results that go to rank 0");
    if (lines_) lines_->close();
  }

 private:
  static constexpr int kResults = 0;  // the channel

  void take() {
    while (const std::optional<Message> message = mailbox_->poll(kResults)) {
      const Json result = Json::parse(message->bytes);
      lines_->put(result[0].get<size_t>(), result[1].get<std::string>());
    }
  }

  Comm& comm_;
  std::unique_ptr<Mailbox> mailbox_;
  std::optional<OrderedLines> lines_;  // on rank 0
  size_t begun_ = 0;
};

}  // namespace temper

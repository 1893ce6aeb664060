#pragma once
// Lines of work dealt to the ranks of an mpirun, what computes them, and their results, which go to rank 0 as
// they finish.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/comm/mpi_comm.h"
#include "src/core/json.h"
#include "src/core/stopwatch.h"
#include "src/run/record/run_log.h"
#include "src/run/session/gpu.h"
#include "src/run/session/model_host.h"
#include "src/run/verbs/command_line.h"
#include "src/run/verbs/ordered_lines.h"

namespace temper {

class SharedWork {
 public:
  explicit SharedWork(const CommandLine& line) : mpi_(nullptr, nullptr) {
    comm_ = mpi_.make_comm_of_all(kWaitSeconds);
    mailbox_ = mpi_.make_mailbox(kWaitSeconds);
    start_log("", "warn", comm_->rank(), /*on_stderr=*/comm_->rank() == 0);
    std::optional<int64_t> threads;
    if (line.has("--threads")) threads = line.integer("--threads", 1);
    const Device device = resolve_device(line.text("--device", "auto"), "--device cuda", *comm_);
    if (device == Device::cuda) select_gpu(mpi_);
    const std::string dtype = line.text("--dtype", "auto");
    if (const std::string why = dtype_defect(dtype, device); !why.empty())
      fail(Exit::usage, {.what = "this type cannot be used here",
                         .where = "--dtype " + dtype,
                         .why = why,
                         .fix = "add --device cpu, or use bf16"});
    host_.emplace(mpi_, device, resolve_dtype(dtype, device), threads);
  }
  ModelHost& host() { return *host_; }

  /// What there is to do; a file may have the first of it.
  void begin(OrderedLines::Options options) {
    if (rank() == 0) lines_.emplace(std::move(options));
    const std::string begun = lines_ ? std::to_string(lines_->begun()) : "";
    begun_ = std::stoull(comm_->broadcast(begun, 0, "results that are there, of rank 0"));
  }
  /// Dealt to this rank, and not done before.
  bool mine(size_t item) const {
    return item >= begun_ && static_cast<int>(item % static_cast<size_t>(comm_->size())) == rank();
  }
  /// The lines of an item of this rank, each with its end.
  void put(size_t item, std::string text) {
    if (lines_)
      lines_->put(item, std::move(text));
    else
      mailbox_->post(0, kResults, Json::array({item, std::move(text)}).dump());
    if (lines_) take();
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
  static constexpr double kWaitSeconds = 86400;  // one rank may have a day's more work than another
  static constexpr int kResults = 0;             // the channel

  int rank() const { return comm_->rank(); }
  void take() {
    while (const std::optional<Message> message = mailbox_->poll(kResults)) {
      const Json result = Json::parse(message->bytes);
      lines_->put(result[0].get<size_t>(), result[1].get<std::string>());
    }
  }

  MpiSession mpi_;
  std::unique_ptr<Comm> comm_;
  std::unique_ptr<Mailbox> mailbox_;
  std::optional<ModelHost> host_;
  std::optional<OrderedLines> lines_;  // on rank 0
  size_t begun_ = 0;
};

}  // namespace temper

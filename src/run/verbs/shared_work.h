#pragma once
// Lines of work dealt to the ranks of an mpirun: what computes them, and where their results go.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/comm/mpi_comm.h"
#include "src/io/hf/model_folder.h"
#include "src/run/host/gpu.h"
#include "src/run/host/model_host.h"
#include "src/run/host/rank_threads.h"
#include "src/run/record/run_log.h"
#include "src/run/record/shared_results.h"
#include "src/run/session/start/find_checkpoint.h"
#include "src/run/verbs/command_line.h"
#include "src/run/verbs/json_lines.h"

namespace temper {

class SharedWork {
 public:
  explicit SharedWork(const CommandLine& line) : mpi_(nullptr, nullptr) {
    comm_ = mpi_.make_comm_of_all(kWaitSeconds);
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
    neighbours_ = mpi_.make_comm_of_host(kWaitSeconds);
    host_.emplace(device, resolve_dtype(dtype, device), rank_threads(*neighbours_, threads).number);
  }
  ModelHost& host() { return *host_; }
  const Comm& all() const { return *comm_; }
  /// The ranks of this host.
  Comm& neighbours() const { return *neighbours_; }

  /// Those of a file, or of rank 0's stdin ("-").
  std::vector<JsonLine> lines(const std::string& path) const {
    if (path != "-") return read_json_lines(path);
    return json_lines_of(comm_->broadcast(comm_->rank() == 0 ? read_stdin() : "", 0, "stdin of rank 0"),
                         "stdin");
  }

  /// The model of --model, or of --checkpoint.
  ModelSource source(const CommandLine& line) const {
    refuse_run_folder(line.text("--model"));
    if (!line.has("--checkpoint")) {
      ModelSource source;
      source.folder = line.text("--model");
      source.allow_unused = line.list("--allow-unused");
      if (line.has("--lora")) add_adapters(source, line.text("--lora"));
      return source;
    }
    if (line.has("--lora"))
      fail(Exit::usage, {.what = "adapters beside a checkpoint",
                         .where = "--lora",
                         .why = "a checkpoint has the adapters of its run",
                         .fix = "leave --lora out, or give --model DIR instead of --checkpoint"});
    return checkpoint_source(shared_checkpoint(line.text("--checkpoint"), *comm_), line.text("--model"));
  }

  /// Says where the results go; once.
  SharedResults& begin(OrderedLines::Options options) {
    return results_.emplace(mpi_, *comm_, kWaitSeconds, std::move(options));
  }

 private:
  static constexpr double kWaitSeconds = 86400;  // one rank may have a day's more work than another

  MpiSession mpi_;
  std::unique_ptr<Comm> comm_, neighbours_;
  std::optional<ModelHost> host_;
  std::optional<SharedResults> results_;
};

}  // namespace temper

#pragma once
// Lines of work dealt to the ranks of an mpirun, what computes them, and their results
// printed in input order by rank 0.

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mpi_comm.h"
#include "src/core/json.h"
#include "src/run/record/run_log.h"
#include "src/run/session/gpu.h"
#include "src/run/session/model_host.h"
#include "src/run/verbs/command_line.h"

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
    host_.emplace(mpi_, device, resolve_dtype(dtype, device), threads);
  }
  ModelHost& host() { return *host_; }
  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  bool mine(size_t index) const { return static_cast<int>(index % static_cast<size_t>(size())) == rank(); }

  /// Adds the output line of an item of this rank.
  void put(size_t index, const Json& value) { lines_.push_back(Json::array({index, dump_json_line(value)})); }
  /// Prints all lines in order of index (rank 0).
  void print() {
    std::map<size_t, std::string> all;
    for (const std::string& part : comm_->all_gather(lines_.dump(), "results, copied"))
      for (const Json& one : Json::parse(part)) all[one[0].get<size_t>()] = one[1].get<std::string>();
    if (rank() != 0) return;
    for (const auto& [index, text] : all) std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

 private:
  static constexpr double kWaitSeconds = 86400;  // one rank may have a day's more work than another
  MpiSession mpi_;
  std::unique_ptr<Comm> comm_;
  std::optional<ModelHost> host_;
  Json lines_ = Json::array();
};

}  // namespace temper

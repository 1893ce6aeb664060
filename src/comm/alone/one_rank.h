#pragma once
// The world of a process alone: what goes between ranks, where there is one. The results are those of MPI
// with one rank, bit for bit: nothing goes anywhere, and a sum over one is a copy.

#include <memory>
#include <string>
#include <vector>

#include "src/comm/collectives.h"
#include "src/comm/comm.h"
#include "src/comm/mailbox.h"
#include "src/core/process/progress.h"

namespace temper {

class OneRank : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier(const char*) override { note_progress(); }
  std::string broadcast(const std::string& bytes, int, const char*) override {
    note_progress();
    return bytes;
  }
  std::vector<std::string> all_gather(const std::string& bytes, const char*) override {
    note_progress();
    return {bytes};
  }
  void all_reduce_sum(std::vector<double>&, const char*) override { note_progress(); }
  double all_reduce_max(double value, const char*) override {
    note_progress();
    return value;
  }
};

std::unique_ptr<Collectives> collectives_of_one();
/// Messages to this rank alone.
std::unique_ptr<Mailbox> mailbox_of_one(double wait_limit_seconds);

}  // namespace temper

#pragma once
// Control between ranks: bytes and numbers of the host, few and small. Sums run in ascending rank order, so a
// result is a pure function of the inputs and of the number of ranks. Every call carries the name that a hang
// report shows, and a limit after which it stops the run with Exit::hang. Tensors: comm/collectives.h.

#include <memory>
#include <string>
#include <vector>

namespace temper {

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier(const char* what) = 0;
  /// The bytes of `root`, on every rank.
  virtual std::string broadcast(const std::string& bytes, int root, const char* what) = 0;
  /// The bytes of every rank, in rank order.
  virtual std::vector<std::string> all_gather(const std::string& bytes, const char* what) = 0;
  /// values[i] <- sum over ranks of values[i].
  virtual void all_reduce_sum(std::vector<double>& values, const char* what) = 0;
  /// NaN when any rank has NaN.
  virtual double all_reduce_max(double value, const char* what) = 0;
};

}  // namespace temper

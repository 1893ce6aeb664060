#pragma once
// Collectives over the ranks of one role axis (today: dp). Sums run in ascending rank order, so a result is a
// pure function of the inputs and of the number of ranks. Every call carries the name that a hang report
// shows, and a limit after which it stops the run with Exit::hang. MPI carries host memory; device tensors
// get a Comm of their own.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/core/tensor.h"

namespace temper {

/// Elements [begin, end) of a flat buffer that one rank of the axis owns.
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// Equal shares of `elements`, cut at multiples of 16; the last ranks may own less, or nothing.
FlatRange shard_range(int64_t elements, int rank, int size);

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
  /// `flat` [n]: this rank's shard_range becomes the sum over ranks; the rest is left as it was.
  virtual void reduce_scatter_sum(Tensor flat, const char* what) = 0;
  /// `flat` [n]: every rank's shard_range is copied to all ranks.
  virtual void all_gather_shards(Tensor flat, const char* what) = 0;
};

}  // namespace temper

#pragma once
// The stages of a model on the ranks of an axis, and what they send to each other: the residual stream [T, D]
// after a stage's layers goes on, its gradient comes back, or the tokens that were drawn. Layers see nothing
// of it.

#include <span>

#include "src/comm/collectives.h"
#include "src/comm/comm.h"

namespace temper {

class Pipeline {
 public:
  /// One stage.
  Pipeline() = default;
  /// Both are of the same ranks, in the order of their stages.
  Pipeline(Collectives& tensors, Comm& control) : tensors_(&tensors), control_(&control) {}

  int stage() const { return tensors_ ? tensors_->rank() : 0; }
  int stages() const { return tensors_ ? tensors_->size() : 1; }
  /// What this stage has sent to others so far.
  int64_t bytes_sent() const { return tensors_ ? tensors_->bytes_sent() : 0; }
  bool first() const { return stage() == 0; }
  bool last() const { return stage() == stages() - 1; }

  /// All at once, to and from stages, in the order of the lists between two of them: ranks that send to each
  /// other never wait in a circle.
  void exchange(Ctx& c, std::span<const Parcel> out, std::span<const Parcel> in, const char* what) const;
  /// The stream [tokens, width] that the stage before sends, in scratch; none to the first one.
  Tensor receive(Ctx& c, int64_t tokens, int64_t width, DType dtype) const;
  /// Exchanges what a step needs: streams and gradients go to others, and what it works on comes, if another
  /// has it (else no data).
  void exchange(Ctx& c, std::span<const Parcel> out, const Parcel& in) const {
    exchange(c, out, {&in, in.data ? 1u : 0u}, "streams and gradients between stages");
  }
  /// The last stage's bytes, on all.
  std::string from_last(const std::string& bytes, const char* what) const {
    return stages() > 1 ? control_->broadcast(bytes, stages() - 1, what) : bytes;
  }
  void copy_from_last(std::vector<double>& values, const char* what) const;
  /// mine [n] on the first and the last stage becomes the first stage's + the last one's.
  void sum_ends(Ctx& c, const Tensor& mine, const char* what) const;

 private:
  Collectives* tensors_ = nullptr;
  Comm* control_ = nullptr;
};

}  // namespace temper

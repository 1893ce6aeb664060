#pragma once
// The policy as it was when a run of adapters began, on the very base that they are trained on: without
// adapters, or with a copy of those that the run began with. What is trained is put aside for as long.

#include "src/models/model.h"

namespace temper {

class FirstWeights {
 public:
  /// `model` has its first weights, and outlives this. `keeps`: its adapters add something, and are copied;
  /// else passes leave them out.
  FirstWeights(Ctx& c, Model& model, bool keeps);

  int64_t held_bytes() const { return memory_.held_bytes(); }
  /// Weights change for it: not while others read them.
  bool changes_weights() const { return uses_adapters_; }

  /// While one lives, passes of the model are those of the first weights.
  class Use {
   public:
    /// `first` null: nothing is done.
    Use(Ctx& c, FirstWeights* first) : c_(c), first_(first) {
      if (first_) first_->swap(c_);
    }
    ~Use() {
      if (first_) first_->swap(c_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Ctx& c_;
    FirstWeights* first_;
  };

 private:
  void swap(Ctx& c);

  Model& model_;
  Arena memory_;
  std::vector<Tensor> kept_;  // of each unit that is trained
  bool uses_adapters_ = false;
};

}  // namespace temper

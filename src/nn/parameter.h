#pragma once
// Trainable tensors. All values of a model lie in one flat buffer (storage dtype), all gradients in another
// (fp32, or fp64 in fp64 runs), in the order of the spec list and at the same element offsets: the optimizer,
// gradient reduction and checkpoints work on flat ranges, layers on the views.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "src/core/arena.h"
#include "src/core/tensor.h"

namespace temper {

/// `rows` leading rows of a parameter and the Hugging Face tensor that they are (fused q,k,v or gate,up).
struct HfPart {
  std::string name;
  int64_t rows = 0;
};

enum class Init { normal, ones, zeros };

/// Names, shape and rules of one parameter: drives allocation, import, export, checkpoints and decay.
struct ParamSpec {
  std::string name;            // "layers.3.attn.wqkv"
  std::vector<HfPart> parts;   // parts.rows add up to shape[0]
  std::vector<int64_t> shape;  // 1-d or 2-d
  Init init = Init::normal;
  int64_t size() const;
  /// AdamW decays tensors of two or more dimensions only.
  bool decays() const { return shape.size() >= 2; }
};

struct Parameter {
  ParamSpec spec;
  int64_t offset = 0;  // first element in the flat buffers
  Tensor value;        // storage dtype
  Tensor grad;         // accumulate dtype; empty in a frozen model
};

class ParameterStore {
 public:
  /// The returned reference stays valid; views are set by `allocate`.
  Parameter& add(ParamSpec spec);
  /// Makes the flat buffers, zeroed. Called once, after the last add.
  void allocate(DType storage, bool with_gradients, Device device = Device::cpu);

  std::deque<Parameter>& list() { return list_; }
  const std::deque<Parameter>& list() const { return list_; }
  Tensor flat_values() const { return values_; }  // [num_elements()]
  Tensor flat_grads() const { return grads_; }    // [num_elements()]
  /// Elements of the flat buffers; offsets are padded to 16, padding stays zero.
  int64_t num_elements() const { return num_elements_; }
  int64_t num_parameters() const;  // without padding
  DType dtype() const { return values_.dtype; }
  Device device() const { return memory_.device(); }
  void zero_grads();

 private:
  std::deque<Parameter> list_;
  int64_t num_elements_ = 0;
  Arena memory_;
  Tensor values_, grads_;
};

}  // namespace temper

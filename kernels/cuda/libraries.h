#pragma once
// What the CUDA backend keeps for a lane between calls: the cuBLASLt handle (loaded at run time, so that the
// program starts where the library is missing), the encoder of tensor maps (from the driver), a workspace,
// counters, and plans.

#include <cublasLt.h>
#include <cuda.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/cuda/choice_file.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/tested_shapes.h"
#include "src/core/cuda.h"

namespace temper::cuda {

/// The functions of libcublasLt that are used.
struct CublasLt {
  decltype(&::cublasLtGetVersion) version;
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) algo_attribute;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
};

/// One product shape of cuBLASLt: up to as many tokens (the rows, or the features of a weight gradient) use
/// the same algorithm.
struct GemmKey {
  int64_t rows, columns, features, pitch;
  DType out;
  bool bias;
  ProductKind kind;
  bool add;
  float scale;  // no part of the name: it chooses no algorithm, but is tested
  auto operator<=>(const GemmKey&) const = default;
  std::string name() const;
};

class Libraries : public LaneLibraries {
 public:
  explicit Libraries(Lane& lane);
  ~Libraries() override;
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  Lane& lane() const { return lane_; }
  /// Loads cuBLASLt at the first call (Exit::environment where it is missing).
  const CublasLt& lt();
  cublasLtHandle_t lt_handle() const { return lt_handle_; }
  void* workspace() const { return workspace_; }
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  /// kCounters zeroed ints; every kernel that uses them leaves them zero.
  int* counters() const { return counters_; }
  static constexpr int64_t kCounters = 1 << 18;

  int multiprocessors() const { return multiprocessors_; }
  /// bf16 tensor in boxes with 128-byte swizzle; sizes and boxes in elements from the innermost dimension on,
  /// strides in bytes without the innermost. Elements outside are zero.
  CUtensorMap tensor_map(const void* data, const std::vector<uint64_t>& sizes,
                         const std::vector<uint64_t>& strides, const std::vector<uint32_t>& box) const;

  /// Algorithms that passed their self-test, of linear_lt.cpp; none where the library lists none.
  std::map<GemmKey, std::optional<cublasLtMatmulAlgo_t>> algorithms;
  /// What earlier runs found fastest, by GemmKey::name. Only after `lt`.
  ChoiceFile& fastest() { return *fastest_; }
  /// Weight shapes (columns, features, gated) whose skinny kernel passed its self-test.
  std::set<std::tuple<int64_t, int64_t, bool>> skinny_shapes;
  /// The same of pairs (columns, columns of the second, features).
  std::set<std::tuple<int64_t, int64_t, int64_t>> pair_shapes;
  /// Products of an expert (kind, N, K or M of a weight gradient, added) whose grouped kernels passed their
  /// self-test.
  std::set<std::tuple<ProductKind, int64_t, int64_t, bool>> expert_shapes;
  /// Attention over pages: query heads, kv heads, their size, rows of a tensor copy.
  TestedShapes<std::tuple<int, int, int, int>> attention_heads;
  /// Heads of gated delta nets: value heads, and how many of them a key head has.
  TestedShapes<std::pair<int, int>> delta_heads;

 private:
  void load_lt();

  Lane& lane_;
  void* lt_library_ = nullptr;
  CublasLt lt_{};
  cublasLtHandle_t lt_handle_ = nullptr;
  std::unique_ptr<ChoiceFile> fastest_;
  void* workspace_ = nullptr;
  int* counters_ = nullptr;
  int multiprocessors_ = 0;
  decltype(&::cuTensorMapEncodeTiled) encode_ = nullptr;
};

inline Libraries& libraries_of(const Ctx& ctx) { return static_cast<Libraries&>(*ctx.lane.libraries()); }

}  // namespace temper::cuda

#pragma once
// Products by cuBLASLt, restricted to the one-chain class of bits. Every algorithm is tested the first time
// its shape comes up (linear_trial.h), and refused if a single bit differs.

#include <string>
#include <vector>

#include "kernels/cuda/libraries.h"

namespace temper::cuda {

/// An aligned product, by the fastest algorithm of the class for its shape; false, and nothing done, where
/// the library lists none.
bool multiply_lt(Ctx& ctx, const Product& p);

struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  std::string name;  // its attributes
};

/// The objects of one call, destroyed with it. The product must outlive it.
class LtCall {
 public:
  LtCall(Libraries& libraries, const Product& p);
  ~LtCall();
  LtCall(const LtCall&) = delete;
  LtCall& operator=(const LtCall&) = delete;

  void run(const cublasLtMatmulAlgo_t& algorithm) const;
  /// Algorithms that sum in one chain: of the wgmma family (id 66), without split K. Best first by the
  /// library's estimate.
  std::vector<Candidate> candidates() const;
  /// All that the library offers, sums in parts included if `in_parts`.
  std::vector<Candidate> all(bool in_parts) const;

 private:
  void set_bias();
  void check(cublasStatus_t status, const char* call) const;
  std::string name_of(const cublasLtMatmulAlgo_t& a) const;
  template <class T>
  T attribute(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t what) const;

  const CublasLt& lt_;
  Libraries& libraries_;
  const Product& p_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
};

}  // namespace temper::cuda

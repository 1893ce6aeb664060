// Which kernel computes a grouped product.

#include "kernels/cuda/experts_linear.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/linear_trial.h"

namespace temper::cuda {
namespace {

/// Up to as many rows of an expert, on average, are few: most tiles of 64 have one expert's all.
constexpr int64_t kFewRows = 32;

bool has_few_rows(const ExpertProduct& p) {
  return p.all.kind == ProductKind::forward && p.rows() <= kFewRows * p.experts;
}

// ---- the self-test of a shape

/// Rows of the experts of a trial: tiles that are whole, cut, of one row, of none.
constexpr int64_t kTrialRows[]{77, 0, 130, 1, 64};
/// Outputs of a trial's weight gradient, at most: one of a model takes GiBs.
constexpr int64_t kMostTrialOutputs = 320;

/// The same product for a few experts, on random rows in memory of its own.
class ExpertTrial {
 public:
  ExpertTrial(Lane& lane, const ExpertProduct& of) : lane_(lane), p_(of) {
    std::vector<int32_t> offsets{0};
    p_.experts = std::min(of.experts, static_cast<int>(std::size(kTrialRows)));
    for (int e = 0; e < p_.experts; ++e)
      offsets.push_back(offsets.back() + static_cast<int32_t>(kTrialRows[e]));
    const int64_t bytes = static_cast<int64_t>(offsets.size() * sizeof(int32_t)), rows = offsets.back();
    auto* at = static_cast<int32_t*>(memory_.allocate(bytes));
    device::copy_to_device(lane_, at, offsets.data(), bytes);
    p_.offsets = at;
    Product& all = p_.all;
    if (all.kind == ProductKind::weight_gradient) {
      all.M = std::min(all.M, kMostTrialOutputs);
      all.N = all.pitch = std::min(all.N, kMostTrialOutputs);
      all.K = rows;
      all.w = random(rows * all.N);
      all.x = random(rows * all.M);
      outputs_ = p_.experts * all.M;
    } else {
      all.M = outputs_ = rows;
      all.x = random(rows * all.K);
    }
  }

  /// Are its outputs those of the plain kernel, bit by bit?
  bool same_bits(bool few_rows) {
    ExpertProduct plain = p_;
    const int64_t bytes = outputs_ * p_.all.pitch * dtype_size(p_.all.out);
    for (ExpertProduct* p : {&p_, &plain}) {
      p->all.y = memory_.allocate(bytes);
      if (p->all.add)
        fill_random(lane_, p->all.y, bytes / dtype_size(DType::bf16));
      else
        device::fill(lane_, p->all.y, 0xff, bytes);
    }
    int* count = static_cast<int*>(memory_.allocate(sizeof(int)));
    device::fill(lane_, count, 0, sizeof(int));
    multiply_experts_wgmma(static_cast<Libraries&>(*lane_.libraries()), p_, few_rows);
    multiply_experts_plain(lane_, plain);
    plain.all.M = outputs_;
    count_differing(lane_, count, p_.all, plain.all, plain.all.N);
    int differing = 0;
    device::copy_from_device(lane_, &differing, count, sizeof(int));
    return differing == 0;
  }

  const Product& product() const { return p_.all; }

 private:
  void* random(int64_t elements) {
    void* at = memory_.allocate(elements * dtype_size(DType::bf16));
    fill_random(lane_, at, elements);
    return at;
  }

  Lane& lane_;
  Arena memory_{Device::cuda};
  ExpertProduct p_;
  int64_t outputs_;  // rows of them
};

/// All of its kernels at once: a graph that is recorded later may hold another one.
void require_expert_class(Ctx& ctx, const ExpertProduct& p) {
  const ProductKind kind = p.all.kind;
  const int64_t other = kind == ProductKind::weight_gradient ? p.all.M : p.all.K;
  if (!libraries_of(ctx).expert_shapes.insert({kind, p.all.N, other, p.all.add}).second) return;
  for (const bool few_rows : {false, true}) {
    if (few_rows && kind != ProductKind::forward) continue;
    ExpertTrial trial(ctx.lane, p);
    if (!trial.same_bits(few_rows)) fail_class("the kernel of experts", trial.product());
  }
}

ExpertProduct of_experts(const Product& all, const CTensor& offsets) {
  return {all, offsets.as<int32_t>(), static_cast<int>(offsets.dim(0) - 1)};
}

}  // namespace

void multiply_experts(Ctx& ctx, const ExpertProduct& p) {
  const bool sums_rows = p.all.kind == ProductKind::weight_gradient;
  if (p.all.M == 0 || p.all.N == 0 || (sums_rows && p.rows() == 0 && p.all.add)) return;
  if (p.rows() == 0 || !is_wgmma_expert_product(p)) return multiply_experts_plain(ctx.lane, p);
  require_expert_class(ctx, p);
  multiply_experts_wgmma(libraries_of(ctx), p, has_few_rows(p));
}

void expert_linear_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor offsets) {
  const int64_t R = x.dim(0), N = y.dim(1), K = x.dim(1);
  multiply_experts(ctx,
                   of_experts({y.raw(), x.data, w.data, nullptr, R, N, K, N, x.dtype, y.dtype}, offsets));
}

void expert_linear_backward_input(Ctx& ctx, Tensor dx, CTensor dy, CTensor w, CTensor offsets) {
  const int64_t R = dy.dim(0), N = dy.dim(1), K = dx.dim(1);
  multiply_experts(ctx, of_experts({dx.raw(), dy.data, w.data, nullptr, R, K, N, K, dy.dtype, dx.dtype,
                                    ProductKind::input_gradient},
                                   offsets));
}

void expert_linear_backward_weight(Ctx& ctx, Tensor dw, CTensor dy, CTensor x, CTensor offsets,
                                   GradWrite write) {
  const int64_t R = dy.dim(0), N = dy.dim(1), K = x.dim(1);
  multiply_experts(ctx, of_experts({dw.raw(), dy.data, x.data, nullptr, N, K, R, K, dy.dtype, dw.dtype,
                                    ProductKind::weight_gradient, write == GradWrite::add},
                                   offsets));
}

}  // namespace temper::cuda

#include "kernels/cuda/linear_trial.h"

#include <vector>

namespace temper::cuda {
namespace {

constexpr int64_t kComparedRows = 64;

int64_t output_bytes(const Product& p) { return p.M * p.pitch * dtype_size(p.out); }

/// Rows [first, first + count) of a product.
Product rows_of(const Product& p, int64_t first, int64_t count) {
  Product part = p;
  const int64_t step = p.kind == ProductKind::weight_gradient ? 1 : p.left_pitch();
  part.x_pitch = p.left_pitch();
  part.x = static_cast<const char*>(p.x) + first * step * dtype_size(p.in);
  part.y = static_cast<char*>(p.y) + first * p.pitch * dtype_size(p.out);
  part.M = count;
  return part;
}

std::vector<Product> compared_parts(const Product& p) {
  if (p.M <= 3 * kComparedRows) return {p};
  std::vector<Product> parts;
  for (const int64_t first : {int64_t{0}, (p.M - kComparedRows) / 2, p.M - kComparedRows})
    parts.push_back(rows_of(p, first, kComparedRows));
  return parts;
}

}  // namespace

Trial::Trial(Lane& lane, const Product& p) : lane_(lane), p_(p) {
  const bool both = p.kind == ProductKind::weight_gradient;
  const int64_t left = p.M * p.K, right = both ? p.K * p.N : 0;
  char* activations = static_cast<char*>(memory_.allocate((left + right) * dtype_size(DType::bf16)));
  fill_random(lane_, activations, left + right);
  p_.x = activations;
  p_.x_pitch = 0;
  if (both) p_.w = activations + left * dtype_size(DType::bf16);
  p_.y = memory_.allocate(output_bytes(p_));
  fill_output();
}

/// Two random bf16 numbers make a finite fp32 number.
void Trial::fill_output() {
  if (p_.add)
    fill_random(lane_, p_.y, output_bytes(p_) / dtype_size(DType::bf16));
  else
    device::fill(lane_, p_.y, 0xff, output_bytes(p_));
}

bool Trial::same_bits(int64_t columns, const Run& run, const Run& reference) {
  ArenaScope scope(memory_);
  fill_output();
  const std::vector<Product> parts = compared_parts(p_);
  std::vector<Product> plain = parts;
  for (Product& part : plain) {
    void* own = memory_.allocate(output_bytes(part));
    device::copy(lane_, own, part.y, output_bytes(part));
    part.y = own;
  }
  int* count = static_cast<int*>(memory_.allocate(sizeof(int)));
  device::fill(lane_, count, 0, sizeof(int));
  run(p_);
  for (size_t i = 0; i < parts.size(); ++i) {
    reference(plain[i]);
    count_differing(lane_, count, parts[i], plain[i], columns);
  }
  int differing = 0;
  device::copy_from_device(lane_, &differing, count, sizeof(int));
  return differing == 0;
}

bool Trial::same_bits_as_chain(const Run& run) {
  return same_bits(p_.N, run, [&](const Product& q) { multiply_chain(lane_, q); });
}

void fail_class(const char* kernel, const Product& p) {
  fail(Exit::environment,
       {.what = fmt::format("{} does not sum in the order that temper's numerics define", kernel),
        .where = fmt::format("product of {} rows, {} outputs, {} features, on {}", p.M, p.N, p.K,
                             device::gpu_name()),
        .why = "its bits differ from a chain of tensor-core products over ascending features",
        .fix = "use a GPU (H100, H200) and a cuBLAS (13) that the kernels were written for"});
}

}  // namespace temper::cuda

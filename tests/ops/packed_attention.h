#pragma once
// A packed batch of normal numbers on either device, and its attention.

#include "src/ops/attention.h"
#include "tests/support/check_op.h"
#include "tests/support/normal_block.h"

namespace temper {

struct AttentionCase {
  AttentionShape shape;
  DType dtype = DType::bf16;
  int64_t page_tokens = 64;
};

/// Where two results in bf16 or fp32, rows of `width` bytes, differ: how much, and where first.
inline std::string first_difference(const std::vector<char>& a, const std::vector<char>& b, int64_t width) {
  if (a == b) return "";
  if (a.size() != b.size()) return fmt::format("{} and {} bytes", a.size(), b.size());
  int64_t count = 0, first = -1;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && count++ == 0) first = static_cast<int64_t>(i);
  return fmt::format("{} of {} bytes differ, first in row {}, byte {} of {}", count, a.size(), first / width,
                     first % width, width);
}

class PackedAttention {
 public:
  PackedAttention(Ctx& c, const AttentionCase& what, const std::vector<int32_t>& lengths, double spread = 1.0)
      : c_(c), what_(what), lengths_(lengths) {
    static const NormalBlock block;
    for (int32_t n : lengths) cu_.push_back(cu_.back() + n);
    qkv_ = c.scratch.make({cu_.back(), what.shape.qkv_width()}, what.dtype);
    out_ = c.scratch.make({cu_.back(), what.shape.q_width()}, what.dtype);
    lse_ = c.scratch.make({what.shape.q_heads, cu_.back()}, accumulate_dtype(what.dtype));
    block.fill(c.device, qkv_, spread, 0, 1);
    device::fill(c.lane, out_.raw(), 0xff, out_.bytes());
    ends_ = c.scratch.make({static_cast<int64_t>(cu_.size())}, DType::i32);
    device::copy_to_device(c.lane, ends_.raw(), cu_.data(), ends_.bytes());
    attention_varlen_forward(c, out_, lse_, qkv_, ends_, what.shape, scale());
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(what_.shape.head_dim)); }
  const std::vector<int32_t>& cu() const { return cu_; }
  const std::vector<int32_t>& lengths() const { return lengths_; }
  const Tensor& ends() const { return ends_; }
  const Tensor& qkv() const { return qkv_; }
  const Tensor& out() const { return out_; }
  const Tensor& lse() const { return lse_; }
  const AttentionCase& what() const { return what_; }
  Ctx& ctx() const { return c_; }

 private:
  Ctx& c_;
  AttentionCase what_;
  std::vector<int32_t> lengths_, cu_{0};
  Tensor qkv_, out_, lse_, ends_;
};

}  // namespace temper

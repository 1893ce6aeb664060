#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_trial.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/trial_memory.h"

namespace temper::cuda {
namespace {

using Bytes = TrialMemory::Bytes;
constexpr double kScale = 0.1;

/// Sequences of equal length, whose last rows come alone.
class AttentionTrial {
 public:
  AttentionTrial(Lane& lane, const AttentionShape& shape, int64_t page_tokens, int64_t sequences,
                 int64_t length)
      : memory_(lane),
        shape_(shape),
        page_tokens_(page_tokens),
        sequences_(sequences),
        length_(length),
        pages_of_one_((length + page_tokens - 1) / page_tokens) {
    const int64_t pages = sequences * pages_of_one_, width = shape.kv_width() * page_tokens;
    qkv_ = memory_.random({sequences * length, shape.qkv_width()});
    keys_ = memory_.nan({1, pages, width}, DType::bf16);
    values_ = memory_.nan({1, pages, width}, DType::bf16);
    table_ = memory_.numbers(pages, [&](int64_t i) { return pages - 1 - i; });
    table_ = make_tensor(table_.raw(), DType::i32, {sequences, pages_of_one_});
    const Tensor out = memory_.nan({sequences * length, shape.q_width()}, DType::bf16),
                 lse = memory_.nan({shape.q_heads, sequences * length}, DType::f32);
    attention_varlen_forward(memory_.ctx(), out, lse, qkv_, ends(length), shape, kScale);
    want_ = memory_.bytes_of(out);
  }

  /// The kernel on rows [begin, end) of every sequence over pages, which have those before.
  bool has_bits(int64_t begin, int64_t end, const DecodeAttention& kernel) {
    const ArenaScope scope(memory_.arena());
    const int64_t count = end - begin;
    const PagedKv kv{keys_, values_, table_, memory_.numbers(sequences_, [&](int64_t) { return end; }),
                     page_tokens_};
    const Tensor qkv = memory_.rows_of_each(qkv_, length_, begin, end),
                 out = memory_.nan({sequences_ * count, shape_.q_width()}, DType::bf16);
    const Tensor cu = ends(count);
    append_kv(memory_.ctx(), kv, 0, qkv, cu, shape_);
    kernel(memory_.ctx(), paged_call(out, qkv, kv, 0, cu, shape_, kScale));
    const Bytes got = memory_.bytes_of(out);
    const auto row = static_cast<int64_t>(want_.size()) / qkv_.dim(0);
    for (int64_t n = 0; n < sequences_; ++n)
      if (!std::equal(got.begin() + n * count * row, got.begin() + (n + 1) * count * row,
                      want_.begin() + (n * length_ + begin) * row))
        return false;
    return true;
  }

 private:
  Tensor ends(int64_t rows_of_one) {
    return memory_.numbers(sequences_ + 1, [&](int64_t n) { return n * rows_of_one; });
  }

  TrialMemory memory_;
  AttentionShape shape_;
  int64_t page_tokens_, sequences_, length_, pages_of_one_;
  Tensor qkv_, keys_, values_, table_;
  Bytes want_;
};

std::string text(const AttentionShape& s) {
  return fmt::format("{} query heads of {} over {}, on {}", s.q_heads, s.head_dim, s.kv_heads,
                     device::gpu_name());
}

}  // namespace

bool has_bits_of_prefill(Libraries& libraries, const AttentionShape& shape, int64_t page_tokens,
                         const DecodeAttention& decode) {
  constexpr int64_t kFew = 2, kLong = kSplitKeys + 100, kShort = 40;
  const int64_t many = libraries.multiprocessors() / shape.kv_heads + 1;
  for (const auto& [sequences, length] : {std::pair{kFew, kLong}, {many, kShort}}) {
    AttentionTrial trial(libraries.lane(), shape, page_tokens, sequences, length);
    if (!trial.has_bits(0, length - 1, attention_prefill))
      fail(Exit::environment,
           {.what = "attention over pages does not have the bits of attention over packed rows",
            .where = text(shape),
            .why = "prefill of random rows differs from it, and no slower kernel stands for it",
            .fix = "use a GPU (H100, H200) that the kernels were written for"});
    if (!trial.has_bits(length - 1, length, decode ? decode : attention_decode)) return false;
  }
  return true;
}

bool may_use_decode(Ctx& ctx, const AttentionCall& a) {
  if (a.group() > kDecodeGroup) return false;
  Libraries& libraries = libraries_of(ctx);
  const AttentionShape shape{a.q_heads, a.kv_heads, a.head_dim};
  const int copied = rows_per_copy(a.pages.page_tokens);
  return libraries.attention_heads.may_use(
      {a.q_heads, a.kv_heads, a.head_dim, copied},
      [&] { return fmt::format("decode kernels of attention with {}", text(shape)); },
      [&] { return has_bits_of_prefill(libraries, shape, copied); });
}

}  // namespace temper::cuda

#include "kernels/cuda/hybrid/delta_trial.h"

#include <algorithm>
#include <random>
#include <set>

#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/trial_memory.h"

namespace temper::cuda {
namespace {

using Ends = std::vector<int64_t>;

/// Sequences of equal length; `ends`: how many rows each has after each step over pages.
class DeltaTrial {
 public:
  DeltaTrial(Lane& lane, const DeltaShape& shape, int64_t sequences, const Ends& ends)
      : memory_(lane), shape_(shape), sequences_(sequences), ends_(ends), length_(ends.back()) {
    const int64_t tokens = sequences * length_;
    qkv_ = memory_.random({tokens, shape.qkv_width()});
    unit_heads_forward(memory_.ctx(), qkv_, shape);
    std::mt19937 random(1);
    std::vector<float> beta, g;
    for (int64_t i = 0; i < tokens * shape.value_heads; ++i) {
      beta.push_back(static_cast<float>(random() >> 8) * 0x1p-24f);
      g.push_back(static_cast<float>(random() >> 8) * -0x1p-27f);
    }
    beta_ = memory_.copy_of(view_of(beta.data(), {tokens, shape.value_heads}));
    g_ = memory_.copy_of(view_of(g.data(), {tokens, shape.value_heads}));
  }

  bool has_bits_of_plain(const DeltaKernels& kernels) {
    const Packed want = packed([](Ctx& ctx, const DeltaCall& c, bool skip_single_rows) {
      delta_rule_plain(ctx, DType::bf16, c, skip_single_rows);
    });
    return packed(kernels.scan) == want && has_bits_over_pages(kernels, want.front());
  }

 private:
  using Bytes = TrialMemory::Bytes;
  using Packed = std::vector<Bytes>;  // o, u, decays

  template <class Run>
  Packed packed(const Run& run) {
    const ArenaScope scope(memory_.arena());
    const int64_t tokens = qkv_.dim(0);
    const Tensor o = memory_.nan({tokens, shape_.value_width()}, DType::bf16),
                 u = memory_.nan({tokens, shape_.value_width()}, DType::bf16),
                 decays = memory_.nan({tokens, shape_.value_heads}, DType::f32);
    run(memory_.ctx(), packed_call(o, u, decays, qkv_, beta_, g_, cu_seqlens(length_), shape_),
        /*skip_single_rows=*/false);
    return {memory_.bytes_of(o), memory_.bytes_of(u), memory_.bytes_of(decays)};
  }

  bool has_bits_over_pages(const DeltaKernels& kernels, const Bytes& want) {
    const ArenaScope scope(memory_.arena());
    DeltaPages pages;
    pages.keys = memory_.nan({1, sequences_, kDeltaChunk * shape_.key_width()}, DType::bf16);
    pages.writes = memory_.nan({1, sequences_, kDeltaChunk * shape_.value_width()}, DType::bf16);
    pages.decays = memory_.nan({1, sequences_, kDeltaChunk * shape_.value_heads}, DType::f32);
    pages.states = memory_.nan({1, length_ / kDeltaChunk * sequences_, shape_.value_width() * shape_.key_dim},
                               DType::f32);
    pages.tails = memory_.numbers(sequences_, [](int64_t n) { return n; });
    int64_t begin = 0;
    for (const int64_t end : ends_) {
      if (!step_has_bits(kernels, pages, begin, end, want)) return false;
      begin = end;
    }
    return true;
  }

  /// Rows [begin, end) of every sequence.
  bool step_has_bits(const DeltaKernels& kernels, DeltaPages pages, int64_t begin, int64_t end,
                     const Bytes& want) {
    const ArenaScope scope(memory_.arena());
    const int64_t count = end - begin;
    const auto slots_after = [&](int64_t length) {
      const int64_t chunk = std::max<int64_t>(0, length / kDeltaChunk - 1);
      return memory_.numbers(sequences_, [&](int64_t n) { return chunk * sequences_ + n; });
    };
    pages.from = slots_after(begin), pages.to = slots_after(end);
    pages.lengths = memory_.numbers(sequences_, [&](int64_t) { return end; });
    const Tensor o = memory_.nan({sequences_ * count, shape_.value_width()}, DType::bf16);
    const auto some = [&](const Tensor& all) { return memory_.rows_of_each(all, length_, begin, end); };
    const DeltaCall call =
        paged_call(o, pages, 0, some(qkv_), some(beta_), some(g_), cu_seqlens(count), shape_);
    kernels.decode(memory_.ctx(), call, /*single_rows_only=*/count > 1);
    if (count > 1) kernels.scan(memory_.ctx(), call, /*skip_single_rows=*/true);
    const Bytes got = memory_.bytes_of(o);
    const auto row = static_cast<int64_t>(want.size()) / qkv_.dim(0);
    for (int64_t n = 0; n < sequences_; ++n)
      if (!std::equal(got.begin() + n * count * row, got.begin() + (n + 1) * count * row,
                      want.begin() + (n * length_ + begin) * row))
        return false;
    return true;
  }

  Tensor cu_seqlens(int64_t rows_of_one) {
    return memory_.numbers(sequences_ + 1, [&](int64_t n) { return n * rows_of_one; });
  }

  TrialMemory memory_;
  DeltaShape shape_;
  int64_t sequences_;
  Ends ends_;
  int64_t length_;
  Tensor qkv_, beta_, g_;
};

}  // namespace

bool has_bits_of_plain(Lane& lane, const DeltaHeads& heads, const DeltaKernels& kernels) {
  const DeltaShape shape{heads.value_heads / heads.group, heads.value_heads, heads.key_dim, heads.value_dim};
  // Pieces within and over the end of a chunk, and rows one by one over the end of the first and of a later
  // one.
  const Ends of_one{61, 62, 63, 64, 65, 126, 127, 128, 129, 200, 201, 204}, of_many{30, 66, 67, 130};
  const auto enough_for = [&](int blocks) { return (blocks + heads.value_heads - 1) / heads.value_heads; };
  for (const int sequences : std::set<int>{1, enough_for(kEnoughScans / 2), enough_for(kEnoughScans)})
    if (!DeltaTrial(lane, shape, sequences, sequences == 1 ? of_one : of_many).has_bits_of_plain(kernels))
      return false;
  return true;
}

bool may_use_delta_kernels(Ctx& ctx, DType type, const DeltaHeads& heads) {
  if (!has_delta_kernel(type, heads)) return false;
  return libraries_of(ctx).delta_heads.may_use(
      {heads.value_heads, heads.group},
      [&] {
        return fmt::format(
            "the fast kernels of gated delta nets with {} value heads, {} to a key head, on {}",
            heads.value_heads, heads.group, device::gpu_name());
      },
      [&] { return has_bits_of_plain(ctx.lane, heads); });
}

}  // namespace temper::cuda

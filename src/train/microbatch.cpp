#include "src/train/microbatch.h"

#include <limits>

namespace temper {

Batch Microbatch::batch(Ctx& c) const {
  const int64_t t = static_cast<int64_t>(tokens.size()), s = static_cast<int64_t>(cu_seqlens.size());
  return {to_device(c, view_of(tokens.data(), {t})), to_device(c, view_of(positions.data(), {t})),
          to_device(c, view_of(cu_seqlens.data(), {s}))};
}

int64_t packed_length(const Trajectory& t) {
  const auto total = static_cast<int64_t>(t.prompt_tokens.size() + t.response.tokens.size());
  return t.response.tokens.empty() ? 0 : total - 1;
}

int64_t packed_length(const Group& group) {
  int64_t rows = 0;
  for (const Trajectory& t : group.samples) rows += packed_length(t);
  return rows;
}

Microbatch pack(std::span<const Trajectory* const> all, std::span<const int32_t> sequences) {
  Microbatch mb;
  mb.inputs.sequence_begin = {0};
  for (int32_t index : sequences) {
    const Trajectory& t = *all[static_cast<size_t>(index)];
    const auto begin = static_cast<int32_t>(mb.tokens.size());
    const auto prompt = static_cast<int32_t>(t.prompt_tokens.size());
    const auto length = static_cast<int32_t>(packed_length(t));
    for (int32_t i = 0; i < length; ++i) {
      mb.tokens.push_back(i < prompt ? t.prompt_tokens[static_cast<size_t>(i)]
                                     : t.response.tokens[static_cast<size_t>(i - prompt)]);
      mb.positions.push_back(i);
    }
    for (size_t r = 0; r < t.response.tokens.size(); ++r) {
      const int32_t row = prompt + static_cast<int32_t>(r) - 1;
      if (row < 0) continue;  // the first token of a sequence without prompt has no log-prob
      mb.rows.push_back(begin + row);
      mb.targets.push_back(t.response.tokens[r]);
      mb.sequence.push_back(index);
      mb.offset.push_back(static_cast<int32_t>(r));
    }
    mb.cu_seqlens.push_back(static_cast<int32_t>(mb.tokens.size()));
    mb.inputs.sequence_begin.push_back(static_cast<int32_t>(mb.rows.size()));
  }
  return mb;
}

void fill_loss_inputs(Microbatch& mb, std::span<const Trajectory* const> all, Aggregation mode,
                      const UpdateCounts& counts) {
  bool reference = true;
  for (int32_t s : mb.sequence) reference = reference && !all[static_cast<size_t>(s)]->ref_logprobs.empty();
  int32_t sequence = -1;
  double weight = 0;  // of its tokens
  for (size_t i = 0; i < mb.rows.size(); ++i) {
    const Trajectory& t = *all[static_cast<size_t>(mb.sequence[i])];
    if (mb.sequence[i] != sequence) {
      sequence = mb.sequence[i];
      weight = omega(mode, counts, t.counted_tokens());
    }
    const auto r = static_cast<size_t>(mb.offset[i]);
    const double sampled =
        t.response.logprobs.empty() ? std::numeric_limits<double>::quiet_NaN() : t.response.logprobs[r];
    mb.inputs.sampled_logprob.push_back(sampled);
    mb.inputs.old_logprob.push_back(t.old_logprobs.empty() ? sampled : t.old_logprobs[r]);
    if (reference) mb.inputs.ref_logprob.push_back(t.ref_logprobs[r]);
    mb.inputs.advantage.push_back(t.advantage);
    mb.inputs.weight.push_back(t.response.mask[r] ? weight : 0.0);
  }
}

}  // namespace temper

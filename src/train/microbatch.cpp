#include "src/train/microbatch.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "src/nn/parallel/context_parallel.h"

namespace temper {

void Microbatch::keep_share(int rank, int ranks) {
  // A sequence that trains nothing, so that no rank is without tokens.
  const int32_t missing = ranks - static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < missing; ++i) tokens.push_back(0), positions.push_back(i);
  const int64_t all = std::ssize(tokens);
  if (missing > 0) cu_seqlens.push_back(static_cast<int32_t>(all));
  const auto first_from = [&](int64_t token) {
    return std::lower_bound(rows.begin(), rows.end(), token) - rows.begin();
  };
  targets_of.clear();
  for (int r = 0; r < ranks; ++r) {
    const FlatRange theirs = token_share(all, r, ranks);
    targets_of.push_back({first_from(theirs.begin), first_from(theirs.end)});
  }
  own = token_share(all, rank, ranks);
  own_targets = targets_of[static_cast<size_t>(rank)];
  own_rows.assign(rows.begin() + own_targets.begin, rows.begin() + own_targets.end);
  for (int32_t& row : own_rows) row -= static_cast<int32_t>(own.begin);
}

Batch Microbatch::batch(Ctx& c) const {
  const int64_t t = own.size(), s = static_cast<int64_t>(cu_seqlens.size());
  return {.tokens = to_device(c, view_of(tokens.data() + own.begin, {t})),
          .positions = to_device(c, view_of(positions.data() + own.begin, {t})),
          .cu_seqlens = to_device(c, view_of(cu_seqlens.data(), {s})),
          .all_tokens = std::ssize(tokens),
          .routers = routers};
}

CTensor Microbatch::target_ids(Ctx& c) const {
  return to_device(c, view_of(targets.data() + own_targets.begin, {own_targets.size()}));
}

CTensor Microbatch::target_rows(Ctx& c) const {
  return to_device(c, view_of(own_rows.data(), {own_targets.size()}));
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

namespace {

/// The counted tokens of response `index`, whose first token has its log-prob in row `before` (of a response
/// without prompt no row has it).
void append_targets(Microbatch& mb, int32_t index, const Response& response, bool has_prompt,
                    int32_t before) {
  for (size_t i = has_prompt ? 0 : 1; i < response.tokens.size(); ++i) {
    if (!response.mask.empty() && response.mask[i] == 0) continue;
    mb.rows.push_back(before + static_cast<int32_t>(i));
    mb.targets.push_back(response.tokens[i]);
    mb.sequence.push_back(index);
    mb.offset.push_back(static_cast<int32_t>(i));
  }
}

/// The counted tokens of responses; those of a session's forks are counted once for all of them.
class CountedTokens {
 public:
  explicit CountedTokens(std::span<const Trajectory* const> all) : all_(all) {}

  int64_t of_response(size_t index) {
    if (const auto known = known_.find(index); known != known_.end()) return known->second;
    size_t begin = index, end = index + 1;
    while (all_[begin]->is_fork() && begin > 0) --begin;
    while (end < all_.size() && all_[end]->is_fork()) ++end;
    int64_t count = 0;
    for (size_t i = begin; i < end; ++i) count += all_[i]->counted_tokens();
    for (size_t i = begin; i < end; ++i) known_[i] = count;
    return count;
  }

 private:
  const std::span<const Trajectory* const> all_;
  std::map<size_t, int64_t> known_;
};

}  // namespace

Microbatch pack(std::span<const Trajectory* const> all, std::span<const int32_t> sequences) {
  Microbatch mb;
  mb.inputs.sequence_begin = {0};
  int64_t tokens = 0;
  for (const int32_t index : sequences) tokens += packed_length(*all[static_cast<size_t>(index)]);
  for (auto* list : {&mb.tokens, &mb.positions, &mb.rows, &mb.targets, &mb.sequence, &mb.offset})
    list->reserve(static_cast<size_t>(tokens));
  for (int32_t index : sequences) {
    const Trajectory& t = *all[static_cast<size_t>(index)];
    const auto begin = static_cast<int32_t>(mb.tokens.size());
    const auto prompt = static_cast<int32_t>(t.prompt_tokens.size());
    const auto length = static_cast<int32_t>(packed_length(t));
    const std::vector<int32_t>& response = t.response.tokens;
    const int32_t asked = std::min(prompt, length);
    mb.tokens.insert(mb.tokens.end(), t.prompt_tokens.begin(), t.prompt_tokens.begin() + asked);
    mb.tokens.insert(mb.tokens.end(), response.begin(), response.begin() + (length - asked));
    mb.positions.resize(mb.tokens.size());
    std::iota(mb.positions.begin() + begin, mb.positions.end(), 0);
    append_targets(mb, index, t.response, prompt > 0, begin + prompt - 1);
    mb.cu_seqlens.push_back(static_cast<int32_t>(mb.tokens.size()));
    mb.inputs.sequence_begin.push_back(static_cast<int32_t>(mb.rows.size()));
  }
  mb.keep_share(0, 1);
  return mb;
}

void fill_loss_inputs(Microbatch& mb, std::span<const Trajectory* const> all, Aggregation mode,
                      const UpdateCounts& counts) {
  bool reference = true;
  for (int32_t s : mb.sequence) reference = reference && !all[static_cast<size_t>(s)]->ref_logprobs.empty();
  CountedTokens tokens(all);
  int32_t sequence = -1;
  double weight = 0;  // of its tokens
  for (size_t i = 0; i < mb.rows.size(); ++i) {
    const Trajectory& t = *all[static_cast<size_t>(mb.sequence[i])];
    if (mb.sequence[i] != sequence) {
      sequence = mb.sequence[i];
      weight = omega(mode, counts, tokens.of_response(static_cast<size_t>(sequence)));
    }
    const auto r = static_cast<size_t>(mb.offset[i]);
    const double sampled =
        t.response.logprobs.empty() ? std::numeric_limits<double>::quiet_NaN() : t.response.logprobs[r];
    mb.inputs.sampled_logprob.push_back(sampled);
    mb.inputs.old_logprob.push_back(t.old_logprobs.empty() ? sampled : t.old_logprobs[r]);
    if (reference) mb.inputs.ref_logprob.push_back(t.ref_logprobs[r]);
    mb.inputs.advantage.push_back(t.advantage_of(r));
    mb.inputs.weight.push_back(weight);
  }
}

}  // namespace temper

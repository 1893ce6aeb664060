#include "src/rollout/logit_edits.h"

#include <algorithm>
#include <limits>

namespace temper {
namespace {

std::vector<LogitEdit> bias_edits(const std::map<int32_t, double>& bias) {
  std::vector<LogitEdit> edits;
  for (const auto& [id, value] : bias) edits.push_back({.id = id, .count = 0, .seen = false, .bias = value});
  return edits;
}

TokenCounts::iterator find_or_add(TokenCounts& counts, int32_t id) {
  const auto at = std::lower_bound(counts.begin(), counts.end(), id,
                                   [](const TokenCount& c, int32_t wanted) { return c.id < wanted; });
  return at != counts.end() && at->id == id ? at : counts.insert(at, {id, 0});
}

}  // namespace

LogitEdits::LogitEdits(const GenerateOptions& options)
    : counts_prompt_(options.sampling.repetition_penalty != 1),
      counts_response_(counts_prompt_ || options.sampling.frequency_penalty != 0 ||
                       options.sampling.presence_penalty != 0),
      min_new_tokens_(options.min_new_tokens),
      bias_(bias_edits(options.logit_bias)) {
  std::map<int32_t, double> early = options.logit_bias;
  for (const int32_t id : options.stop_token_ids) early[id] = -std::numeric_limits<double>::infinity();
  early_bias_ = bias_edits(early);
}

TokenCounts LogitEdits::count(std::span<const int32_t> tokens, int64_t prompt_tokens) const {
  const auto prompt = tokens.first(static_cast<size_t>(prompt_tokens));
  TokenCounts counts;
  if (counts_prompt_) {
    std::vector<int32_t> ids(prompt.begin(), prompt.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (const int32_t id : ids) counts.push_back({id, 0});
  }
  for (const int32_t id : tokens.subspan(prompt.size())) count_next(counts, id);
  return counts;
}

void LogitEdits::count_next(TokenCounts& counts, int32_t token) const {
  if (counts_response_) ++find_or_add(counts, token)->in_response;
}

std::vector<LogitEdit> LogitEdits::at(const TokenCounts& counts, int64_t position) const {
  const std::vector<LogitEdit>& bias = position < min_new_tokens_ ? early_bias_ : bias_;
  std::vector<LogitEdit> edits;
  edits.reserve(bias.size() + counts.size());
  auto next = bias.begin();
  for (const TokenCount& c : counts) {
    for (; next != bias.end() && next->id < c.id; ++next) edits.push_back(*next);
    const bool biased = next != bias.end() && next->id == c.id;
    edits.push_back({c.id, c.in_response, /*seen=*/true, biased ? (next++)->bias : 0.0});
  }
  edits.insert(edits.end(), next, bias.end());
  return edits;
}

}  // namespace temper

#include "src/rollout/responses/response_growth.h"

#include <algorithm>

namespace temper {

void ResponseGrowth::go_on(Sequence& s, OpenRequests& requests) const {
  const auto [before, made] = requests.take_begun(s);
  s.after_stop = made > 0;
  if (before.tokens.empty()) return;
  text_.skip(s, before.text);
  for (size_t i = 0; i < before.tokens.size(); ++i) take(s, before.tokens[i], before.logprobs[i]);
  if (!before.routes.empty()) s.response.routes = before.routes;
  auto& versions = s.response.versions = before.versions;
  if (!versions.empty() && versions.back().second == 0) versions.pop_back();  // its call makes some now
  s.begun_tokens = s.new_tokens() - made;
  s.seen = s.size() - 1;  // the last token was never fed
}

/// The response grows by a token; true when the token ends it.
bool ResponseGrowth::take(Sequence& s, int32_t token, double logprob) const {
  s.tokens.push_back(token);
  s.rules->edits.count_next(s.counts, token);
  s.response.tokens.push_back(token);
  s.response.mask.push_back(1);
  s.response.logprobs.push_back(logprob);
  const auto& stops = s.rules->options.stop_token_ids;
  const bool stop_id = std::find(stops.begin(), stops.end(), token) != stops.end();
  const bool stop_text = text_.grow(s, token);
  return stop_id || stop_text;
}

bool ResponseGrowth::append(Sequence& s, int32_t token, double logprob) const {
  s.got_token();
  const bool stopped = take(s, token, logprob);
  const int64_t added = s.new_tokens() - s.begun_tokens;
  const GenerateOptions& options = s.rules->options;
  const bool full = s.new_tokens() >= options.max_new_tokens || s.size() >= capacity_;
  const bool cut = options.tokens_per_call > 0 && added >= options.tokens_per_call;
  if (stopped || full) {
    s.response.finish = stopped ? FinishReason::stop : FinishReason::length;
    text_.end(s);
  }
  if (on_grown_) on_grown_({s.request, s.sample, token, logprob, text_.take_certain(s), s.found});
  return stopped || full || cut;
}

}  // namespace temper

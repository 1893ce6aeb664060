#include "src/rollout/sampler.h"

#include <cmath>

#include "src/ops/rows.h"

namespace temper {
namespace {

std::string place(const Sequence& s) {
  return fmt::format("prompt at data position {}, sample {}, response position {}", s.data_position, s.sample,
                     s.new_tokens());
}

}  // namespace

SampleRow Sampler::row(const Sequence& s) const {
  const GenerateOptions& o = s.rules->options;
  return {{o.seed, s.data_position, s.first_sample + s.sample},
          static_cast<uint32_t>(s.new_tokens()),
          o.sampling,
          {}};
}

DrawnTokens Sampler::draw(Ctx& c, const LogprobHead& head, const Tensor& hidden,
                          std::span<const DrawTarget> targets) const {
  std::vector<int32_t> index;
  std::vector<std::vector<LogitEdit>> edits;
  std::vector<SampleRow> rows;
  for (const DrawTarget& target : targets) {
    const Sequence& s = *target.sequence;
    index.push_back(target.row);
    edits.push_back(s.rules->edits.at(s.counts, s.new_tokens()));
    rows.push_back(row(s));
    rows.back().edits = edits.back();
  }
  const auto n = static_cast<int64_t>(index.size());
  Tensor chosen = c.scratch.make({n, hidden.dim(1)}, hidden.dtype);
  gather_rows(c, chosen, hidden, to_device(c, view_of(index.data(), {n})));
  const Sampled drawn = head.sample(c, chosen, place_rows(c, rows), num_sampleable_);
  return {to_host<int32_t>(c, drawn.tokens), to_host<double>(c, drawn.logprob)};
}

void Sampler::require_drawn(const Sequence& s, int32_t token, double logprob) const {
  if (!std::isfinite(logprob))
    fail(Exit::numerics,
         {.what = "logits are not finite while sampling",
          .where = place(s),
          .why = fmt::format("the log-prob of the drawn token is {}", logprob),
          .fix = "check the weights for NaN and infinity: a diverged step, or a damaged model folder"});
  if (token < 0)
    fail(Exit::numerics,
         {.what = "no token is left to draw",
          .where = place(s),
          .why = fmt::format("{} logits were changed, {} ids may be drawn, and each is at -infinity",
                             s.rules->edits.at(s.counts, s.new_tokens()).size(), num_sampleable_),
          .fix = "lower rollout.min_new_tokens or take ids out of rollout.stop_token_ids"});
}

}  // namespace temper

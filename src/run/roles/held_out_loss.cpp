#include "src/run/roles/held_out_loss.h"

#include <algorithm>
#include <cmath>

#include "src/config/sets/validation_sets.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/run/groups/prompt_work.h"

namespace temper {

HeldOutLoss::HeldOutLoss(const Parts& parts) : p_(parts) {
  const Config& c = p_.config;
  for (const ValidationSet& source : c.validation.data) {
    PromptStream stream({{source.path}}, c.data, c.run.seed, p_.tokenizer, p_.chat,
                        {p_.plan.lengths.max_prompt, p_.plan.lengths.longest,
                         /*with_response=*/true, p_.plan.vocab_size, p_.plan.media_token_ids});
    digests_.push_back(stream.digests().front());
    if (!rewards_of(source, c).functions.empty() && !stream.has_responses()) {
      if (p_.all.rank() == 0) log::info("no loss on {}: its first line has no response", source.path);
      continue;
    }
    Set set{.name = name_of(source), .lines = {}};
    for (DrawnPrompt& drawn : stream.all(c.validation.max_prompts)) {
      Response response = given_response(drawn.prompt, /*version=*/0);
      set.lines.push_back(to_group({std::move(drawn)}, {std::move(response)}).samples.front());
      set.tokens += set.lines.back().counted_tokens();
    }
    if (set.tokens == 0)
      fail(Exit::data, {.what = "nothing to validate on",
                        .where = "validation.data, " + source.path,
                        .why = fmt::format("no line of it fits into {} tokens, or none has a response",
                                           p_.plan.lengths.longest),
                        .fix = "raise model.context_tokens, or give another file"});
    sets_.push_back(std::move(set));
  }
}

/// Some micro-batches of each rank at once: between them all may be stopped.
std::optional<double> HeldOutLoss::loss_of(const Set& set) const {
  const int64_t at_once = p_.pass.token_budget * p_.dp.size() * (1 + p_.pipeline.stages());
  double sum = 0;
  for (size_t next = 0; next < set.lines.size();) {
    const bool stops = p_.stops();
    if (p_.all.all_reduce_max(stops ? 1.0 : 0.0, "stop of the held-out loss, max over ranks") > 0) return {};
    std::vector<const Trajectory*> some;
    int64_t rows = 0;
    for (; next < set.lines.size() && rows < at_once; ++next) {
      some.push_back(&set.lines[next]);
      rows += packed_length(*some.back());
    }
    const auto logprobs = packed_logprobs(p_.ctx, p_.model, p_.dp, some, p_.pass, p_.pipeline);
    for (size_t i = 0; i < some.size(); ++i)
      for (size_t t = 0; t < logprobs[i].size(); ++t)
        if (some[i]->response.mask[t]) sum -= logprobs[i][t];
    if (p_.all.rank() == 0) note_work(std::ssize(some), rows);  // of all ranks
  }
  return sum / static_cast<double>(set.tokens);
}

std::optional<std::map<std::string, double>> HeldOutLoss::run() const {
  std::map<std::string, double> metrics;
  if (p_.all.rank() == 0)
    for (const Set& set : sets_) expect_work(std::ssize(set.lines));
  for (const Set& set : sets_) {
    const std::optional<double> loss = loss_of(set);
    if (!loss) return std::nullopt;
    metrics["val/" + set.name + "/loss"] = *loss;
    metrics["val/" + set.name + "/ppl"] = std::exp(*loss);
  }
  return metrics;
}

}  // namespace temper

#include "src/run/groups/prompt_work.h"

#include <algorithm>
#include <numeric>

#include "src/core/check.h"

namespace temper {
namespace {

/// Most rows of a prompt in the step: its tokens once, what each sample has and may still get.
int64_t most_rows(const PromptWork& work, const DealOptions& o) {
  const auto rows_of = [&](int64_t begun) {
    const int64_t left = o.max_new_tokens - begun;
    return begun + (o.tokens_per_step > 0 ? std::min(left, o.tokens_per_step) : left);
  };
  int64_t rows = static_cast<int64_t>(work.drawn.prompt.tokens.size());
  if (work.before.samples.empty()) return rows + o.samples_per_prompt * rows_of(0);
  for (const Trajectory& t : work.before.samples)
    if (t.response.finish == FinishReason::unfinished)
      rows += rows_of(static_cast<int64_t>(t.response.tokens.size()));
  return rows;
}

}  // namespace

std::vector<int64_t> deal(const std::vector<PromptWork>& work, const DealOptions& options) {
  std::vector<int64_t> rows;
  for (const PromptWork& w : work) rows.push_back(most_rows(w, options));
  std::vector<size_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a] > rows[b]; });
  std::vector<int64_t> load(static_cast<size_t>(options.ranks)), rank(work.size());
  for (const size_t i : order) {
    rank[i] = work[i].home ? *work[i].home : std::min_element(load.begin(), load.end()) - load.begin();
    load.at(static_cast<size_t>(rank[i])) += rows[i];
  }
  return rank;
}

std::optional<PromptWork> go_on(PromptStream& prompts, Group begun, bool accepts_changes) {
  const Trajectory& t = begun.samples.front();
  DrawnPrompt drawn = prompts.at(t.data_position);
  // A session that has ended begins with what its program asked first.
  const bool same = t.session ? drawn.prompt.text == t.prompt : drawn.prompt.tokens == t.prompt_tokens;
  if (same) return PromptWork{std::move(drawn), std::move(begun)};
  if (accepts_changes) return std::nullopt;
  fail(Exit::data, {.what = "an unfinished response belongs to another prompt",
                    .where = fmt::format("data position {}", drawn.position),
                    .why = fmt::format("the checkpoint has a prompt of {} tokens there, data.train one of {}",
                                       t.prompt_tokens.size(), drawn.prompt.tokens.size()),
                    .fix = "go on with the data, chat template and tokenizer of the checkpoint's run, or set "
                           "checkpoint.accept_changes = true: new prompts take the place of such ones"});
}

Request to_request(const PromptWork& work, int64_t samples_per_prompt) {
  Request request{work.drawn.position, work.drawn.prompt.tokens, static_cast<int32_t>(samples_per_prompt)};
  if (!work.before.samples.empty()) request.num_samples = static_cast<int32_t>(work.before.samples.size());
  for (const Trajectory& t : work.before.samples) request.begun.push_back(t.response);
  return request;
}

Group to_group(const PromptWork& work, std::vector<Response> responses) {
  Group group = work.before;
  group.samples.resize(responses.size());
  for (size_t i = 0; i < responses.size(); ++i) {
    Trajectory& t = group.samples[i];
    t.data_position = work.drawn.position;
    t.sample = static_cast<int32_t>(i);
    t.prompt_tokens = work.drawn.prompt.tokens;
    t.prompt = work.drawn.prompt.text;
    t.response = std::move(responses[i]);
    t.answer = work.drawn.prompt.answer;
    t.domain = work.drawn.prompt.domain;
  }
  return group;
}

Response given_response(const Prompt& prompt, int64_t version) {
  Response r;
  r.tokens = prompt.response_tokens;
  r.mask = prompt.response_mask;
  r.mask.resize(r.tokens.size(), 1);
  if (!r.tokens.empty()) r.versions = {{version, static_cast<int32_t>(r.tokens.size())}};
  r.text = prompt.response;
  r.finish = FinishReason::stop;
  return r;
}

bool is_finished(const Group& group) {
  return std::none_of(group.samples.begin(), group.samples.end(),
                      [](const Trajectory& t) { return t.response.finish == FinishReason::unfinished; });
}

bool is_whole(const PromptWork& work) { return !work.before.samples.empty() && is_finished(work.before); }

bool is_uniform(const Group& group) {
  const double shared = shared_reward(group);
  return std::all_of(group.samples.begin(), group.samples.end(),
                     [&](const Trajectory& t) { return t.excluded || t.raw_reward == shared; });
}

double shared_reward(const Group& group) {
  const auto rewarded = std::find_if(group.samples.begin(), group.samples.end(),
                                     [](const Trajectory& t) { return !t.excluded; });
  return rewarded == group.samples.end() ? 0 : rewarded->raw_reward;
}

}  // namespace temper

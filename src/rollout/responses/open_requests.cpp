#include "src/rollout/responses/open_requests.h"

namespace temper {

size_t OpenRequests::add(size_t at_work, std::vector<Response> responses, bool after_stop) {
  open_[num_requests_] = {at_work, std::move(responses), after_stop, false};
  return num_requests_++;
}

std::pair<Response, int64_t> OpenRequests::take_begun(const Sequence& s) {
  Open& open = open_.at(s.request);
  Response before = std::move(open.responses[static_cast<size_t>(s.sample)]);
  const int64_t made = tokens_before_stop(open.after_stop, before, version_);
  return {std::move(before), made};
}

void OpenRequests::put_away(Sequence& s) {
  const auto added = static_cast<int32_t>(s.new_tokens() - s.begun_tokens);
  auto& versions = s.response.versions;
  if (s.after_stop)
    versions.back().second = added;
  else if (added > 0 || !versions.empty())
    versions.emplace_back(version_, added);
  open_.at(s.request).responses[static_cast<size_t>(s.sample)] = std::move(s.response);
  end_work(s.request, 1);
}

void OpenRequests::put_away_prompt(const Sequence& prompt) {
  Open& open = open_.at(prompt.request);
  for (const int32_t sample : prompt.samples)
    leave_run(open.after_stop, open.responses[static_cast<size_t>(sample)], version_);
  end_work(prompt.request, prompt.ends());
}

void OpenRequests::cancel(size_t request, size_t ends) {
  open_.at(request).cancelled = true;
  end_work(request, ends);
}

void OpenRequests::end_work(size_t request, size_t ends) {
  const auto open = open_.find(request);
  if ((open->second.at_work -= ends) > 0) return;
  if (!open->second.cancelled) finished_.push_back({request, std::move(open->second.responses)});
  open_.erase(open);
}

}  // namespace temper

#include "src/run/groups/request_samples.h"

namespace temper {

bool RequestSamples::add(PromptWork& work, int64_t num_samples, bool after_stop) {
  Request request = to_request(work, num_samples);
  request.after_stop = after_stop;
  if (open_samples(request, options_).empty()) return false;
  at_work_.emplace(generation_.add(std::move(request)), std::move(work));
  return true;
}

std::vector<MadeGroup> RequestSamples::step(Ctx& c, bool cut) {
  std::vector<MadeGroup> made;
  for (Generation::Finished& f : cut ? generation_.cut(c) : generation_.step(c)) {
    const PromptWork work = std::move(at_work_.extract(f.request).mapped());
    made.push_back({to_group(work, std::move(f.responses)), work.drawn.record});
  }
  return made;
}

}  // namespace temper

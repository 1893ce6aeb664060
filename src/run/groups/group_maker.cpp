#include "src/run/groups/group_maker.h"

#include <iterator>

#include "src/core/process/progress.h"

namespace temper {

GroupMaker::GroupMaker(const Parts& parts, const GenerateOptions& options, std::function<bool()> stops)
    : p_(parts),
      options_(options),
      stops_(std::move(stops)),
      generation_(p_.engine, options_, &p_.tokenizer) {
  if (p_.team.leads()) workers_.emplace(p_.rewards);
}

void GroupMaker::add(PromptWork work, int64_t num_samples, bool after_stop) {
  Request request = to_request(work, num_samples);
  request.after_stop = after_stop;
  if (open_samples(request, options_).empty())
    return sort_in(std::move(work.before), std::move(work.drawn.record));
  at_work_.emplace(generation_.add(std::move(request)), std::move(work));
  expect_work(1);
}

GroupMaker::Made GroupMaker::next() {
  if (generation_.done()) {
    wait_for_rewards();
    return std::exchange(made_, {});
  }
  cut_ = p_.engine.others().somewhere(
      p_.team.agree(stops_, "whether the work on groups is cut, as the leader says"));
  for (Generation::Finished& f : cut_ ? generation_.cut(p_.ctx) : generation_.step(p_.ctx)) {
    note_work(1, 0);
    const PromptWork work = std::move(at_work_.extract(f.request).mapped());
    sort_in(to_group(work, std::move(f.responses)), work.drawn.record);
  }
  if (workers_) made_.scored = workers_->take_finished();
  return std::exchange(made_, {});
}

void GroupMaker::sort_in(Group group, std::shared_ptr<const Json> record) {
  if (!workers_) return;
  if (is_finished(group))
    workers_->submit(std::move(group), std::move(record));
  else
    made_.left.push_back(std::move(group));
}

void GroupMaker::wait_for_rewards() {
  done_ = true;
  generated_ = watch_.seconds();
  if (!workers_) return;
  made_.scored = workers_->collect(stops_);
  std::vector<Group> unscored = workers_->take_unscored();
  cut_ = cut_ || !unscored.empty();
  std::move(unscored.begin(), unscored.end(), std::back_inserter(made_.left));
  rewarded_ = watch_.seconds() - generated_;
}

}  // namespace temper

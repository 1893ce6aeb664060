#include "src/run/groups/group_maker.h"

#include <iterator>

#include "src/core/process/progress.h"
#include "src/run/groups/request_samples.h"
#include "src/run/groups/session_samples.h"

namespace temper {

GroupMaker::GroupMaker(const Parts& parts, const GenerateOptions& options, std::function<bool()> stops)
    : p_(parts), options_(options), stops_(std::move(stops)) {
  if (p_.plays)
    samples_ = std::make_unique<SessionSamples>(
        SessionSamples::Parts{p_.engine, options_, p_.tokenizer, p_.team, p_.sessions});
  else
    samples_ = std::make_unique<RequestSamples>(p_.engine, options_, p_.tokenizer);
  if (p_.team.leads()) workers_.emplace(p_.rewards);
}

void GroupMaker::add(PromptWork work, int64_t num_samples, bool after_stop) {
  if (!samples_->add(work, num_samples, after_stop))
    return sort_in(std::move(work.before), std::move(work.drawn.record));
  expect_work(1);
}

GroupMaker::Made GroupMaker::next() {
  if (samples_->done()) {
    wait_for_rewards();
    return std::exchange(made_, {});
  }
  cut_ = p_.engine.others().somewhere(
      p_.team.agree(stops_, "whether the work on groups is cut, as the leader says"));
  for (MadeGroup& made : samples_->step(p_.ctx, cut_)) {
    note_work(1, 0);
    sort_in(std::move(made.group), std::move(made.record));
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

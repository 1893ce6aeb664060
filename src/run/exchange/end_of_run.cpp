#include "src/run/exchange/end_of_run.h"

#include <set>

namespace temper {

void EndOfRun::tell() {
  if (!decides()) return;
  std::set<int> others;
  const auto add = [&](const std::vector<int>& ranks) { others.insert(ranks.begin(), ranks.end()); };
  add(ranks_.producers), add(ranks_.with_producers), add(ranks_.with_stages);
  for (const std::vector<int>& stage : ranks_.stages) add(stage);
  for (const int rank : others)
    if (!ranks_.trains(rank)) mailbox_.post(rank, kEnd, "");
  tell_idle();
}

void EndOfRun::tell_idle() {
  if (!decides()) return;
  for (const int rank : world_)
    if (!ranks_.has_role(rank)) mailbox_.post(rank, kEnd, "");
}

bool EndOfRun::look() {
  if (mailbox_.poll(kEnd)) has_come_ = true;
  if (const std::optional<Message> decided = mailbox_.poll(kDecided)) after_ = std::stoll(decided->bytes);
  if (asked() && decides()) decide();
  return has_come_;
}

bool EndOfRun::asked() {
  if (reason_.empty() && asked_) reason_ = asked_();
  if (decides()) {
    if (const std::optional<Message> call = mailbox_.poll(kAsk); call && reason_.empty())
      reason_ = call->bytes;
  } else if (!reason_.empty() && !passed_on_) {
    mailbox_.post(ranks_.trainer.front(), kAsk, reason_);
    passed_on_ = true;
  }
  return after_ || !reason_.empty();
}

bool EndOfRun::agree(Comm& trainer, bool also) {
  const bool mine = asked() || also;
  if (trainer.all_reduce_max(mine ? 1.0 : 0.0, "stop request, max over trainer ranks") == 0) return false;
  decide();
  return true;
}

void EndOfRun::decide() {
  if (after_ || !decides()) return;
  after_ = trained_;
  for (const int rank : world_)
    if (rank != mailbox_.rank()) mailbox_.post(rank, kDecided, std::to_string(*after_));
}

}  // namespace temper

#include "src/run/exchange/end_of_run.h"

#include <set>

#include "src/core/json.h"
#include "src/core/stopwatch.h"

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

void EndOfRun::tell_trained(int64_t step, Saving saving) {
  if (!decides()) return;
  for (const int rank : ranks_.keepers_apart())
    mailbox_.post(rank, kTrained, dump_json_line({{"step", step}, {"saving", saving}}));
}

void EndOfRun::tell_last_save(const LastSave& save) {
  if (!decides()) return;
  const Json message{{"step", save.step}, {"produced", save.produced}, {"version", save.version}};
  for (const int rank : ranks_.keepers_apart()) mailbox_.post(rank, kLastSave, dump_json_line(message));
}

std::optional<Saving> EndOfRun::wait_trained(int64_t step) {
  for (const Stopwatch waited; look(), !told_trained_.contains(step);) {
    // The last save may be found before what was sent ahead of it.
    if (has_come_ || (last_save_ && last_save_->step < step)) return std::nullopt;
    mailbox_.pause(waited.seconds(), "the trainer's step");
  }
  return told_trained_.extract(step).mapped();
}

bool EndOfRun::look() {
  if (mailbox_.poll(kEnd)) has_come_ = true;
  while (const std::optional<Message> trained = mailbox_.poll(kTrained)) {
    const Json message = parse_json(trained->bytes, "message between ranks");
    told_trained_[message.at("step").get<int64_t>()] = message.at("saving").get<Saving>();
  }
  if (const std::optional<Message> last = mailbox_.poll(kLastSave)) {
    const auto of = [message = parse_json(last->bytes, "message between ranks")](const char* name) {
      return message.at(name).get<int64_t>();
    };
    last_save_ = {of("step"), of("produced"), of("version")};
  }
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

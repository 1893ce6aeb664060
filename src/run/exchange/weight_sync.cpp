#include "src/run/exchange/weight_sync.h"

#include "src/core/check.h"
#include "src/core/stopwatch.h"

namespace temper {

WeightTransfer& WeightSync::transfer(const ParameterStore& weights) {
  if (!transfer_) transfer_.emplace(weights, static_cast<int>(ranks_.trainer.size()));
  return *transfer_;
}

void WeightSync::publish(const ParameterStore& weights, int64_t version) {
  CHECK(version == version_ || version == version_ + 1, "version {} published after {}", version, version_);
  version_ = version;
  std::vector<int> receivers;
  for (int rank : ranks_.producers)
    if (!ranks_.trains(rank)) receivers.push_back(rank);
  if (receivers.empty()) return;
  const Stopwatch waited;
  while (mailbox_.outgoing_bytes(kWeights) > 0) mailbox_.pause(waited.seconds(), "weights, version before");
  const auto me = std::lower_bound(ranks_.trainer.begin(), ranks_.trainer.end(), mailbox_.rank());
  const std::string bytes =
      transfer(weights).message(weights, static_cast<int>(me - ranks_.trainer.begin()), version);
  for (int rank : receivers) mailbox_.post(rank, kWeights, bytes);
  bytes_moved_ += static_cast<int64_t>(bytes.size() * receivers.size());
}

bool WeightSync::receive(ParameterStore& weights, int64_t version) {
  if (ranks_.trains(mailbox_.rank())) {
    CHECK(version == version_, "a step wants weights of version {}, the trainer is at {}", version, version_);
    return true;
  }
  WeightTransfer& plan = transfer(weights);
  const Stopwatch waited;
  for (size_t source = 0; source < ranks_.trainer.size();) {
    std::deque<std::string>& come = come_[ranks_.trainer[source]];
    if (!come.empty()) {
      plan.apply(weights, static_cast<int>(source++), version, come.front());
      bytes_moved_ += static_cast<int64_t>(come.front().size());
      come.pop_front();
      continue;
    }
    const bool last = end_.look();  // looked at first: versions that were sent before the end are still taken
    if (std::optional<Message> message = mailbox_.poll(kWeights))
      come_[message->from].push_back(std::move(message->bytes));
    else if (last)
      return false;
    else
      mailbox_.pause(waited.seconds(), "weights from the trainer");
  }
  plan.check_digest(weights);
  version_ = version;
  return true;
}

}  // namespace temper

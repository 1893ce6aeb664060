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
  const Stopwatch waited;
  while (mailbox_.outgoing_bytes(kWeights) > 0) {
    end_.look();
    if (end_.after()) break;  // the run ends: it goes out all the same, all count on it
    mailbox_.pause(waited.seconds(), "weights, version before");
  }
  post(weights, version);
}

void WeightSync::post(const ParameterStore& weights, int64_t version) {
  std::vector<int> receivers;
  for (int rank : ranks_.producers)
    if (!ranks_.trains(rank)) receivers.push_back(rank);
  if (receivers.empty()) return;
  std::string bytes = transfer(weights).message(weights, source_index(), version);
  for (int rank : receivers) mailbox_.post(rank, kWeights, bytes);
  bytes_moved_ += static_cast<int64_t>(bytes.size() * receivers.size());
  if (keeps_ == 0) return;
  sent_[version] = std::move(bytes);
  sent_.erase(sent_.begin(), sent_.lower_bound(version - keeps_));
}

bool WeightSync::look_into_sent(const ParameterStore& weights, int64_t version,
                                const WeightTransfer::See& see) {
  const auto sent = sent_.find(version);
  if (sent == sent_.end()) return false;
  transfer(weights).look_into(weights, source_index(), sent->second, see);
  return true;
}

void WeightSync::wait_for_end() {
  for (const Stopwatch waited; !end_.look();)
    if (!mailbox_.poll(kWeights)) mailbox_.pause(waited.seconds(), "end of the run");
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

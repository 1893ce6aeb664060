#include "src/run/exchange/weight_sync.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/stopwatch.h"

namespace temper {

int WeightRoutes::source(int rank) const {
  const auto at = std::find(sources.begin(), sources.end(), rank);
  return at == sources.end() ? -1 : static_cast<int>(at - sources.begin());
}

int WeightRoutes::receiver(int rank) const {
  const auto at =
      std::find_if(receivers.begin(), receivers.end(), [rank](const Receiver& r) { return r.rank == rank; });
  return at == receivers.end() ? -1 : static_cast<int>(at - receivers.begin());
}

WeightTransfer& WeightSync::transfer(const ParameterStore& weights, size_t receiver) {
  if (const auto made = transfers_.find(receiver); made != transfers_.end()) return made->second;
  if (!windows_) windows_.emplace(weights.device());
  const WeightRoutes::Receiver& to = routes_.receivers[receiver];
  return transfers_
      .try_emplace(receiver, weights, routes_.holders, to.place, routes_.source(to.rank), *windows_)
      .first->second;
}

void WeightSync::publish(const ParameterStore& trained, int64_t version) {
  CHECK(version == version_ || version == version_ + 1, "version {} published after {}", version, version_);
  version_ = version;
  const Stopwatch waited;
  while (mailbox_.outgoing_bytes(kWeights) > 0) {
    end_.look();
    if (end_.after()) break;  // the run ends: it goes out all the same, all count on it
    mailbox_.pause(waited.seconds(), "weights, version before");
  }
  post(trained, version);
}

/// Receivers with the same place that do not train get the same rows; the first of each place have a whole
/// model together.
void WeightSync::post(const ParameterStore& trained, int64_t version) {
  const int own = routes_.source(mailbox_.rank());
  std::map<std::pair<int, int64_t>, std::string> by_place;
  std::map<size_t, std::string> first_model;
  for (size_t i = 0; i < routes_.receivers.size(); ++i) {
    const WeightRoutes::Receiver& to = routes_.receivers[i];
    const WeightTransfer& plan = transfer(trained, i);
    if (!std::binary_search(plan.senders().begin(), plan.senders().end(), own)) continue;
    const bool alike = routes_.source(to.rank) < 0;
    const std::pair<int, int64_t> place{to.place.rank, to.place.units.ranges.front().begin};
    std::string bytes = alike ? by_place[place] : "";
    const bool first = bytes.empty();
    if (first) bytes = plan.message(trained, own, version);
    mailbox_.post(to.rank, kWeights, bytes);
    bytes_moved_ += static_cast<int64_t>(bytes.size());
    if (keeps_ > 0 && first) first_model[i] = bytes;
    if (alike) by_place[place] = std::move(bytes);
  }
  if (keeps_ == 0 || routes_.receivers.empty()) return;
  sent_[version] = std::move(first_model);
  sent_.erase(sent_.begin(), sent_.lower_bound(version - keeps_));
}

bool WeightSync::look_into_sent(const ParameterStore& trained, int64_t version,
                                const WeightTransfer::See& see) {
  const auto sent = sent_.find(version);
  if (sent == sent_.end()) return false;
  const int own = routes_.source(mailbox_.rank());
  for (const auto& [receiver, bytes] : sent->second)
    transfer(trained, receiver).look_into(trained, own, bytes, see);
  return true;
}

void WeightSync::wait_for_end() {
  for (const Stopwatch waited; !end_.look();)
    if (!mailbox_.poll(kWeights)) mailbox_.pause(waited.seconds(), "end of the run");
}

bool WeightSync::receive(Lane& lane, ParameterStore& weights, const ParameterStore* trained,
                         int64_t version) {
  CHECK(!trained || version == version_, "a step wants weights of version {}, the trainer is at {}", version,
        version_);
  if (trained == &weights) return true;
  const int own = routes_.receiver(mailbox_.rank());
  CHECK(own >= 0, "rank {} has weights of its own, and none are sent there", mailbox_.rank());
  const WeightTransfer& plan = transfer(weights, static_cast<size_t>(own));
  const Stopwatch waited;
  for (const int source : plan.senders()) {
    std::deque<std::string>& come = come_[routes_.sources[static_cast<size_t>(source)]];
    while (come.empty()) {
      const bool last =
          end_.look();  // looked at first: versions that were sent before the end are still taken
      if (std::optional<Message> message = mailbox_.poll(kWeights))
        come_[message->from].push_back(std::move(message->bytes));
      else if (last)
        return false;
      else
        mailbox_.pause(waited.seconds(), "weights from the trainer");
    }
    plan.apply(weights, source, version, come.front());
    bytes_moved_ += static_cast<int64_t>(come.front().size());
    come.pop_front();
  }
  if (trained) plan.copy_own(lane, weights, *trained);
  version_ = version;
  return true;
}

}  // namespace temper

#include "src/run/exchange.h"

#include <algorithm>

#include "src/rl/trajectory_bytes.h"

namespace temper {

void Exchange::send(Hop hop, int64_t step, Group group) { outbox_[{hop, step}].push_back(std::move(group)); }

std::vector<Group> Exchange::receive(Hop hop, int64_t step) {
  const auto node = outbox_.extract(Key{hop, step});
  const std::vector<Group> mine = node.empty() ? std::vector<Group>{} : std::move(node.mapped());
  std::vector<Group> all;
  for (const std::string& part :
       comm_->all_gather(groups_to_bytes(mine), "finished groups, copied to all ranks"))
    for (Group& g : groups_from_bytes(part)) all.push_back(std::move(g));
  const auto index = [](const Group& g) { return g.samples.empty() ? -1 : g.samples.front().group; };
  std::sort(all.begin(), all.end(), [&](const Group& a, const Group& b) { return index(a) < index(b); });
  for (size_t i = 0; i < all.size(); ++i)
    CHECK(index(all[i]) == static_cast<int32_t>(i), "group {} of step {} is missing or came twice", i, step);
  return all;
}

void Exchange::publish_weights(const Model& model, int64_t version) {
  CHECK(version == version_ + 1, "version {} published after {}", version, version_);
  version_ = version;
  published_ = &model;
}

void Exchange::receive_weights(const Model& model, int64_t version) {
  CHECK(version == version_, "step wants weights of version {}, the trainer is at {}", version, version_);
  CHECK(published_ == nullptr || published_ == &model, "roles on the same ranks must share one model");
}

int64_t Exchange::buffered_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, groups] : outbox_) bytes += static_cast<int64_t>(groups_to_bytes(groups).size());
  return bytes;
}

}  // namespace temper

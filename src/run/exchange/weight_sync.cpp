#include "src/run/exchange/weight_sync.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "src/core/check.h"
#include "src/core/stopwatch.h"

namespace temper {
namespace {

constexpr const char *kYes = "y", *kNo = "n";

/// What can be read of a source: how it is opened, where each piece begins.
std::string offer_text(const ParameterStore& trained, const WeightTransfer& plan, int own) {
  const std::string handle =
      trained.shards_values() ? "" : device::memory_handle(trained.flat_values().raw());
  if (handle.empty()) return "";
  const std::vector<int64_t> at = plan.places(trained, own);
  return std::string(reinterpret_cast<const char*>(at.data()), at.size() * sizeof(int64_t)) + handle;
}

}  // namespace

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

void WeightSync::connect(const ParameterStore* trained, const ParameterStore* generating) {
  const ParameterStore* const any = trained ? trained : generating;
  if (any == nullptr || any->device() != Device::cuda) return;
  const size_t asked = trained ? offer(*trained) : 0;
  if (generating && generating != trained) open(*generating);
  for (size_t answers = 0; answers < asked; ++answers) {
    const Message answer = await(kOpened, "whether weights are read out of this GPU's memory");
    if (answer.bytes == kYes) readers_.insert(static_cast<size_t>(routes_.receiver(answer.from)));
  }
}

/// Returns how many ranks it asked.
size_t WeightSync::offer(const ParameterStore& trained) {
  const int own = routes_.source(mailbox_.rank());
  size_t asked = 0;
  for (size_t i = 0; i < routes_.receivers.size(); ++i) {
    const WeightTransfer& plan = transfer(trained, i);
    if (!plan.sends(own)) continue;
    mailbox_.post(routes_.receivers[i].rank, kMemory, offer_text(trained, plan, own));
    ++asked;
  }
  return asked;
}

void WeightSync::open(const ParameterStore& generating) {
  const int own = routes_.receiver(mailbox_.rank());
  CHECK(own >= 0, "rank {} has weights of its own, and none are sent there", mailbox_.rank());
  for (size_t left = transfer(generating, static_cast<size_t>(own)).senders().size(); left > 0; --left) {
    const Message offered = await(kMemory, "where the trainer's weights lie");
    const int source = routes_.source(offered.from);
    size_t pieces = 0;
    for (const WeightPiece& piece : transfer(generating, static_cast<size_t>(own)).pieces())
      pieces += piece.move.holder == source;
    const size_t places = pieces * sizeof(int64_t);
    Opened opened;
    if (offered.bytes.size() > places)
      opened.memory = device::PeerMemory::open(std::string_view(offered.bytes).substr(places));
    mailbox_.post(offered.from, kOpened, opened.memory ? kYes : kNo);
    if (!opened.memory) continue;
    opened.weights.base = opened.memory->base();
    opened.weights.at.resize(pieces);
    std::memcpy(opened.weights.at.data(), offered.bytes.data(), places);
    memories_[source] = std::move(opened);
  }
}

Message WeightSync::await(int channel, const char* what) {
  for (const Stopwatch waited;;) {
    if (std::optional<Message> message = mailbox_.poll(channel)) return std::move(*message);
    mailbox_.pause(waited.seconds(), what);
  }
}

bool WeightSync::all_read() {
  while (reading_ > 0 && mailbox_.poll(kRead)) --reading_;
  return reading_ == 0;
}

void WeightSync::wait_read() {
  for (const Stopwatch waited; !all_read();)
    mailbox_.pause(waited.seconds(), "weights, last version read by all");
  if (copying_) copying_->wait();
}

void WeightSync::publish(Ctx& c, const ParameterStore& trained, int64_t version) {
  CHECK(version == version_ || version == version_ + 1, "version {} published after {}", version, version_);
  version_ = version;
  const Stopwatch waited;
  while (mailbox_.outgoing_bytes(kWeights) > 0 || !all_read()) {
    end_.look();
    if (end_.after()) break;  // the run ends: it goes out all the same, all count on it
    mailbox_.pause(waited.seconds(), "weights, version before");
  }
  post(c, trained, version, By::memory);
}

/// Receivers with the same place that do not train get the same rows, out of the same memory; the first of
/// each place have a whole model together.
void WeightSync::post(Ctx& c, const ParameterStore& trained, int64_t version, By by) {
  const int own = routes_.source(mailbox_.rank());
  std::map<std::tuple<int, int64_t, bool>, Bytes> by_place;
  std::set<std::pair<int, int64_t>> places;
  sent_.erase(sent_.begin(), sent_.lower_bound(version - keeps_));
  std::map<size_t, Kept> first_model;
  for (size_t i = 0; i < routes_.receivers.size(); ++i) {
    const WeightRoutes::Receiver& to = routes_.receivers[i];
    const WeightTransfer& plan = transfer(trained, i);
    if (!plan.sends(own)) continue;
    const bool alike = routes_.source(to.rank) < 0, reads = by == By::memory && readers_.contains(i);
    const int64_t unit = to.place.units.ranges.front().begin;
    Bytes other, &bytes = alike ? by_place[{to.place.rank, unit, reads}] : other;
    if (!bytes)
      bytes = reads ? std::make_shared<const std::string>(plan.notice(c, trained, own, version))
                    : make_message(c, plan, trained, version);
    mailbox_.post_shared(to.rank, kWeights, bytes);
    bytes_moved_ += static_cast<int64_t>(bytes->size()) + (reads ? plan.bytes_from(own) : 0);
    reading_ += reads;
    if (keeps_ > 0 && (!alike || places.emplace(to.place.rank, unit).second))
      first_model[i] = reads ? begin_copy(c.lane, plan, trained) : Kept{bytes, nullptr};
  }
  if (keeps_ > 0 && !routes_.receivers.empty()) sent_[version] = std::move(first_model);
}

WeightSync::Bytes WeightSync::make_message(Ctx& c, const WeightTransfer& plan, const ParameterStore& trained,
                                           int64_t version) {
  const int own = routes_.source(mailbox_.rank());
  const auto bytes = static_cast<size_t>(plan.bytes_from(own));
  auto free = std::find_if(memory_.begin(), memory_.end(), [&](const std::shared_ptr<std::string>& memory) {
    return memory.use_count() == 1 && memory->capacity() >= bytes;
  });
  if (free == memory_.end()) free = memory_.insert(free, std::make_shared<std::string>());
  **free = plan.message(c, trained, own, version, std::move(**free));
  return *free;
}

WeightSync::Kept WeightSync::begin_copy(const Lane& written, const WeightTransfer& plan,
                                        const ParameterStore& trained) {
  const int own = routes_.source(mailbox_.rank());
  const int64_t bytes = plan.bytes_from(own);
  auto free = std::find_if(copies_.begin(), copies_.end(), [&](const std::shared_ptr<Region>& memory) {
    return memory.use_count() == 1 && memory->held_bytes() >= bytes;
  });
  if (free == copies_.end()) {
    free = copies_.insert(free, std::make_shared<Region>(Device::cpu, MemoryUse::weights));
    (*free)->grow_to(bytes);
    (*free)->pin();
  }
  if (!copying_) copying_ = std::make_unique<Lane>(trained.device());
  copying_->follow(written);
  plan.copy_rows(*copying_, trained, own, (*free)->base());
  return {nullptr, *free};
}

bool WeightSync::look_into_sent(const ParameterStore& trained, int64_t version,
                                const WeightTransfer::See& see) {
  const auto sent = sent_.find(version);
  if (sent == sent_.end()) return false;
  const int own = routes_.source(mailbox_.rank());
  if (copying_) copying_->wait();
  for (const auto& [receiver, kept] : sent->second)
    transfer(trained, receiver).look_into(trained, own, kept.rows(), see);
  return true;
}

void WeightSync::wait_for_end() {
  for (const Stopwatch waited; !end_.look() && !end_.last_save();)
    if (!mailbox_.poll(kWeights)) mailbox_.pause(waited.seconds(), "end of the run");
}

/// What a source sent next, of this version; nothing where the run ends before it.
std::optional<std::string> WeightSync::next_from(int source, int64_t version) {
  std::deque<std::string>& come = come_[routes_.sources[static_cast<size_t>(source)]];
  for (const Stopwatch waited; come.empty();) {
    // Looked at first: versions that were sent before the end are still taken.
    const bool last = end_.look() || end_.ends_before_version(version);
    if (std::optional<Message> message = mailbox_.poll(kWeights))
      come_[message->from].push_back(std::move(message->bytes));
    else if (last)
      return std::nullopt;
    else
      mailbox_.pause(waited.seconds(), "weights from the trainer");
  }
  std::string message = std::move(come.front());
  come.pop_front();
  return message;
}

bool WeightSync::receive(Ctx& c, ParameterStore& weights, const ParameterStore* trained, int64_t version) {
  CHECK(!trained || version == version_, "a step wants weights of version {}, the trainer is at {}", version,
        version_);
  if (trained == &weights) return true;
  const int own = routes_.receiver(mailbox_.rank());
  CHECK(own >= 0, "rank {} has weights of its own, and none are sent there", mailbox_.rank());
  const WeightTransfer& plan = transfer(weights, static_cast<size_t>(own));
  for (const int source : plan.senders()) {
    std::optional<std::string> message = next_from(source, version);
    if (!message) return false;
    bytes_moved_ += static_cast<int64_t>(message->size());
    if (WeightTransfer::is_notice(*message) && memories_.contains(source)) {
      plan.apply(c, weights, source, version, *message, memories_.at(source).weights);
      mailbox_.post(routes_.sources[static_cast<size_t>(source)], kRead, "");
      bytes_moved_ += plan.bytes_from(source);
    } else {
      plan.apply(c, weights, source, version, *message);
      mailbox_.reuse(std::move(*message));
    }
  }
  if (trained) plan.copy_own(c.lane, weights, *trained);
  version_ = version;
  return true;
}

}  // namespace temper

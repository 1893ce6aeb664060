#include "src/comm/gpu/neighbours.h"

#include <exception>
#include <utility>

#include "src/comm/mpi_check.h"
#include "src/core/device.h"

namespace temper {

/// Numbers the ranks of this rank's host, and makes an inbox for them where there are others. What they open
/// it by: empty where there is none.
std::string Neighbours::make_inbox(const std::vector<std::string>& hosts, int rank) {
  const std::string& host = hosts[static_cast<size_t>(rank)];
  int ranks = 0;
  for (size_t other = 0; other < hosts.size(); ++other)
    if (hosts[other] == host) peers_[other].inbox.owner = ranks++;
  ranks_ = ranks;
  own_.owner = peers_[static_cast<size_t>(rank)].inbox.owner;
  if (ranks == 1 || ranks > kMostFlows + 1 || host.empty()) return "";
  memory_ = std::make_unique<Region>(Device::cuda);
  memory_->share();
  memory_->grow_to((ranks - 1) * Inbox::kRankBytes);
  numbers_ = device::PeerNumbers::make(num_numbers());
  const std::string handle = device::memory_handle(memory_->base());
  if (!numbers_ || handle.empty()) return "";
  own_.base = memory_->base();
  own_.numbers = numbers_.get();
  for (int other = 0; other < ranks; ++other)
    if (other != own_.owner)
      device::clear(Device::cuda, own_.marked_places(other), Inbox::kMarkedAllBytes + Inbox::kCounterBytes);
  return numbers_->name() + '\n' + handle;
}

/// Whether it could be.
bool Neighbours::open_inbox(Peer& of, const std::string& offer) const {
  const size_t name = offer.find('\n');
  if (name == std::string::npos || own_.base == nullptr) return false;
  of.memory = device::PeerMemory::open(std::string_view(offer).substr(name + 1));
  of.numbers = device::PeerNumbers::open(offer.substr(0, name), num_numbers());
  return of.memory && of.numbers;
}

/// `reach`: for each rank, 'y' for those whose inboxes it has open.
void Neighbours::note_reach(const std::vector<std::string>& reach, size_t rank) {
  for (size_t one = 0; one < reach.size(); ++one)
    for (size_t other = 0; other < one; ++other) {
      const bool both = reach[one][other] == 'y' && reach[other][one] == 'y';
      any_ = any_ || both;
      all_ = all_ && both;
      if (!both || (one != rank && other != rank)) continue;
      Peer& of = peers_[one == rank ? other : one];
      of.inbox.base = of.memory->base();
      of.inbox.numbers = of.numbers.get();
    }
}

std::unique_ptr<Neighbours> Neighbours::meet(Comm& all, const std::string& host) {
  std::unique_ptr<Neighbours> made(new Neighbours);
  const auto rank = static_cast<size_t>(all.rank());
  made->peers_.resize(static_cast<size_t>(all.size()));
  const std::vector<std::string> hosts = all.all_gather(host, "hosts of the ranks, copied");
  const std::string offer = made->make_inbox(hosts, all.rank());
  const std::vector<std::string> offers = all.all_gather(offer, "handles of inboxes, copied");
  std::string reached(offers.size(), 'n');
  for (size_t other = 0; other < offers.size(); ++other)
    if (other != rank && hosts[other] == host && made->open_inbox(made->peers_[other], offers[other]))
      reached[other] = 'y';
  made->note_reach(all.all_gather(reached, "who reaches whose inbox, copied"), rank);
  if (made->numbers_) made->numbers_->forget_name();
  return made->any_ ? std::move(made) : nullptr;
}

const uint32_t* Neighbours::stop_word() const { return numbers_->on_gpu(num_numbers() - 1); }
void Neighbours::stop_kernels() {
  if (numbers_) numbers_->set(num_numbers() - 1, 1);
}

/// All that this rank reaches have come as far.
void Neighbours::wait_for_phase(uint32_t phase) const {
  constexpr double kSeconds = 10;
  const auto come = [&] {
    mpi_progress();
    for (const Peer& peer : peers_)
      if (peer.inbox.base != nullptr &&
          own_.numbers->get(Inbox::number(Inbox::gone, peer.inbox.owner)) < phase)
        return false;
    return true;
  };
  for (const Peer& peer : peers_)
    if (peer.inbox.base != nullptr) peer.numbers->set(Inbox::number(Inbox::gone, own_.owner), phase);
  wait_until(come, own_.owner, "end", "ranks of one host", kSeconds);
}

bool Neighbours::part() noexcept {
  try {
    wait_for_phase(1);
    for (Peer& peer : peers_) peer.memory.reset();
    wait_for_phase(2);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void Neighbours::abandon() noexcept {
  for (Peer& peer : peers_) {
    (void)peer.memory.release();
    (void)peer.numbers.release();
  }
  (void)numbers_.release();
  (void)memory_.release();
}

}  // namespace temper

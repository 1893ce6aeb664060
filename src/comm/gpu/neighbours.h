#pragma once
// Memory of a GPU that ranks of the same host write into: every rank has an inbox, opened by the others
// (core/gpu/peer_memory.h), and numbers in host memory beside it by which copies take turns
// (core/gpu/peer_numbers.h). Where a rank cannot open another's inbox, or that one not its own, the two do
// not reach each other.

#include <memory>
#include <vector>

#include "src/comm/comm.h"
#include "src/core/gpu/peer_memory.h"
#include "src/core/gpu/peer_numbers.h"
#include "src/core/region.h"
#include "src/ops/peers/peer_exchange.h"

namespace temper {

/// For each other rank of the host: places for pieces that copy engines bring, and what a kernel exchanges
/// small parcels by (ops/peers/peer_exchange.h). Ranks are named by their numbers among those of the host.
struct Inbox {
  static constexpr int64_t kPlaceBytes = int64_t{32} << 20, kPlaces = 2;
  /// Numbers: pieces that came from a rank; of those sent to it, how many it has taken; turns in which it has
  /// sent something to some rank; how far it is with its end.
  enum Kind { came, taken, turns, gone, kinds };
  /// Counters of small parcels: the same on the GPU, and how many pieces this rank has had of both.
  enum Counter { small_came, small_taken, small_sent, small_got, counters };

  int owner = 0;
  char* base = nullptr;
  device::PeerNumbers* numbers = nullptr;

  static constexpr int64_t kCounterBytes = counters * kSmallBlocks * int64_t{sizeof(uint32_t)},
                           kSmallAllBytes = SmallFlow::kPlaces * SmallFlow::kPieceBytes,
                           kMarkedAllBytes = SmallFlow::kPlaces * 2 * SmallFlow::kMarkedBytes,
                           kRankBytes =
                               kPlaces * kPlaceBytes + kSmallAllBytes + kMarkedAllBytes + (int64_t{4} << 10);
  static int64_t number(Kind kind, int from) { return int64_t{from} * kinds + kind; }
  char* place(int from, uint32_t piece) const { return of(from) + piece % kPlaces * kPlaceBytes; }
  char* small_places(int from) const { return of(from) + kPlaces * kPlaceBytes; }
  /// 0 at first, as the counters behind them.
  char* marked_places(int from) const { return small_places(from) + kSmallAllBytes; }
  uint32_t* counter(Counter kind, int from) const {
    return reinterpret_cast<uint32_t*>(marked_places(from) + kMarkedAllBytes) + kind * kSmallBlocks;
  }

 private:
  char* of(int from) const { return base + (from < owner ? from : from - 1) * kRankBytes; }
};

class Neighbours {
 public:
  /// All ranks of `all` call it. `host`: ranks with the same one may reach each other; empty: this one
  /// reaches none. Null where no two do: on all of them.
  static std::unique_ptr<Neighbours> meet(Comm& all, const std::string& host);

  /// Whether every two ranks reach each other.
  bool all() const { return all_; }
  /// The inbox of the rank with this number in `all`, or null: it is not reached.
  const Inbox* inbox(int rank) const {
    const Inbox& of = peers_[static_cast<size_t>(rank)].inbox;
    return of.base != nullptr ? &of : nullptr;
  }
  const Inbox& own() const { return own_; }
  /// What inboxes know a rank by; this one's is `own().owner`.
  int number(int rank) const { return peers_[static_cast<size_t>(rank)].inbox.owner; }
  /// In the memory of kernels, and 0 until `stop_kernels`: they wait for others no longer.
  const uint32_t* stop_word() const;
  void stop_kernels();
  /// Before the end, when nothing of this rank is under way: nobody writes to its inbox any longer, nor has
  /// it open. False: others have not come here within seconds.
  bool part() noexcept;
  /// Nothing is given back: others, or work that never ends, may still write there.
  void abandon() noexcept;

 private:
  struct Peer {
    std::unique_ptr<device::PeerMemory> memory;
    std::unique_ptr<device::PeerNumbers> numbers;
    Inbox inbox;
  };
  Neighbours() = default;
  std::string make_inbox(const std::vector<std::string>& hosts, int rank);
  bool open_inbox(Peer& of, const std::string& offer) const;
  void note_reach(const std::vector<std::string>& reach, size_t rank);
  void wait_for_phase(uint32_t phase) const;
  int64_t num_numbers() const { return int64_t{ranks_} * Inbox::kinds + 1; }

  std::unique_ptr<Region> memory_;
  std::unique_ptr<device::PeerNumbers> numbers_;
  Inbox own_;
  int ranks_ = 1;  // of this host
  bool any_ = false, all_ = true;
  std::vector<Peer> peers_;  // by rank
};

}  // namespace temper

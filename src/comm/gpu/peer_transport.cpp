#include "src/comm/gpu/peer_transport.h"

#ifdef TEMPER_CUDA
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "src/comm/mpi_check.h"
#include "src/core/cuda.h"
#include "src/core/process/progress.h"
#include "src/core/stopwatch.h"
#include "src/ops/small_exchange.h"
#endif

namespace temper {

#ifndef TEMPER_CUDA

std::unique_ptr<Transport> make_peer_transport(std::unique_ptr<Neighbours>, std::unique_ptr<Transport>, int,
                                               int, const char*) {
  CHECK(false, "GPUs that reach each other in a build without CUDA");
}

#else

namespace {

bool is_recorded(const Lane& lane) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream_of(lane), &capture));
  return capture != cudaStreamCaptureStatusNone;
}

/// Large parcels, by copy engines.
class Copies {
 public:
  explicit Copies(const Neighbours& neighbours, int size)
      : neighbours_(neighbours), peers_(static_cast<size_t>(size)) {}

  /// In rounds, of a piece of each parcel: were all streams of a GPU one queue, a piece would wait only for
  /// those of rounds before.
  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in) {
    if (out.empty() && in.empty()) return;
    sends_.follow(lane);
    takes_.follow(lane);
    int64_t longest = 0;
    for (const std::span<const Parcel> list : {out, in})
      for (const Parcel& p : list) longest = std::max(longest, p.bytes);
    for (int64_t at = 0; at < longest; at += Inbox::kPlaceBytes) {
      for (const Parcel& p : out)
        if (at < p.bytes) send(piece(p, at));
      for (const Parcel& p : in)
        if (at < p.bytes) take(piece(p, at));
    }
  }
  /// What comes on the lane comes after the last exchange.
  void join(Lane& lane) {
    lane.follow(sends_);
    lane.follow(takes_);
  }
  void wait() {
    sends_.wait();
    takes_.wait();
  }
  /// What waits for others here waits no longer. Said again and again, since others may still write what they
  /// have to; not for long, since the caller's work may wait for something else.
  void stop() {
    constexpr double kSeconds = 5;
    for (const Stopwatch watch; is_busy() && watch.seconds() < kSeconds; ::usleep(200)) free_all();
  }

 private:
  struct Peer {
    uint32_t sent = 0, taken = 0;  // pieces to it and from it
  };
  bool is_busy() const {
    return cudaStreamQuery(stream_of(sends_)) == cudaErrorNotReady ||
           cudaStreamQuery(stream_of(takes_)) == cudaErrorNotReady;
  }
  void free_all() {
    constexpr uint32_t kFar = 1u << 30;
    const Inbox& own = neighbours_.own();
    for (int rank = 0; rank < std::ssize(peers_); ++rank) {
      if (neighbours_.inbox(rank) == nullptr) continue;
      own.numbers->set(Inbox::number(Inbox::came, neighbours_.number(rank)), peer(rank).taken + kFar);
      own.numbers->set(Inbox::number(Inbox::taken, neighbours_.number(rank)), peer(rank).sent + kFar);
    }
  }
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  static Parcel piece(const Parcel& p, int64_t at) {
    return {p.peer, static_cast<char*>(p.data) + at, std::min(Inbox::kPlaceBytes, p.bytes - at)};
  }
  static void copy(Lane& lane, void* to, const void* from, int64_t bytes) {
    CUDA_CHECK(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_of(lane)));
  }

  void send(const Parcel& p) {
    const Inbox& there = *neighbours_.inbox(p.peer);
    Peer& to = peer(p.peer);
    const uint32_t number = to.sent++;
    // Its place is free when all pieces but the last ones, as many as there are places, were taken.
    if (to.sent > Inbox::kPlaces)
      neighbours_.own().numbers->wait(sends_, Inbox::number(Inbox::taken, neighbours_.number(p.peer)),
                                      to.sent - Inbox::kPlaces);
    copy(sends_, there.place(neighbours_.own().owner, number), p.data, p.bytes);
    there.numbers->write(sends_, Inbox::number(Inbox::came, neighbours_.own().owner), to.sent);
  }
  void take(const Parcel& p) {
    const Inbox &here = neighbours_.own(), &there = *neighbours_.inbox(p.peer);
    Peer& from = peer(p.peer);
    const uint32_t number = from.taken++;
    here.numbers->wait(takes_, Inbox::number(Inbox::came, neighbours_.number(p.peer)), from.taken);
    copy(takes_, p.data, here.place(neighbours_.number(p.peer), number), p.bytes);
    there.numbers->write(takes_, Inbox::number(Inbox::taken, neighbours_.own().owner), from.taken);
  }

  const Neighbours& neighbours_;
  std::vector<Peer> peers_;  // by rank
  Lane sends_{Device::cuda, Turn::first}, takes_{Device::cuda, Turn::first};
};

/// Small parcels, by a kernel.
class Smalls {
 public:
  explicit Smalls(const Neighbours& neighbours) : neighbours_(neighbours) {}

  /// Parcels of a rank side by side. Calls are in turn whatever lanes they are on; those of a graph have its
  /// order.
  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in, bool recorded) {
    if (out.empty() && in.empty()) return;
    if (!recorded && last_ != lane.stream()) lane.follow(order_);
    exchange_small(lane, flows(out, true), flows(in, false), neighbours_.stop_word());
    if (recorded) return;
    last_ = lane.stream();
    order_.follow(lane);
  }
  void wait() { order_.wait(); }

 private:
  std::vector<SmallFlow> flows(std::span<const Parcel> parcels, bool out) const {
    std::vector<SmallFlow> all;
    int peer = -1;
    for (const Parcel& p : parcels) {
      if (std::exchange(peer, p.peer) != p.peer) all.push_back(flow(p.peer, out));
      SmallFlow& last = all.back();
      CHECK(last.count < SmallFlow::kParcels, "more than {} parcels for one rank", SmallFlow::kParcels);
      last.data[last.count] = p.data;
      last.bytes[last.count++] = p.bytes;
    }
    return all;
  }
  /// To the rank, or from it.
  SmallFlow flow(int rank, bool out) const {
    const Inbox &here = neighbours_.own(), &there = *neighbours_.inbox(rank), &receiver = out ? there : here;
    const int me = here.owner, them = neighbours_.number(rank), sender = out ? me : them;
    SmallFlow flow;
    flow.places = receiver.small_places(sender);
    flow.marked_places = receiver.marked_places(sender);
    flow.theirs = there.counter(out ? Inbox::small_came : Inbox::small_taken, me);
    flow.ours = here.counter(out ? Inbox::small_taken : Inbox::small_came, them);
    flow.turn = here.counter(out ? Inbox::small_sent : Inbox::small_got, them);
    return flow;
  }

  const Neighbours& neighbours_;
  Lane order_{Device::cuda, Turn::first};  // all of them so far
  const void* last_ = nullptr;             // the stream that had the last one
};

/// Parcels of one direction by what carries them.
struct Sorted {
  std::vector<Parcel> large, small, rest;
};

class PeerTransport : public Transport {
 public:
  PeerTransport(std::unique_ptr<Neighbours> neighbours, std::unique_ptr<Transport> others, int rank, int size,
                const char* axis)
      : rank_(rank),
        size_(size),
        where_(fmt::format("{} ranks of one host ({})", size, axis)),
        others_(std::move(others)),
        neighbours_(std::move(neighbours)),
        copies_(*neighbours_, size),
        smalls_(*neighbours_) {}
  /// Beside an error nothing is waited for.
  ~PeerTransport() override {
    if (std::uncaught_exceptions() > 0) {
      neighbours_->stop_kernels();
      copies_.stop();
      others_.reset();
      neighbours_->abandon();
      return;
    }
    try {
      copies_.wait();
      smalls_.wait();
    } catch (const Error&) {  // of a GPU that every later call finds in the same state
    }
    if (!neighbours_->part()) neighbours_->abandon();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* carrier() const override { return others_ ? "peer memory and NCCL" : "peer memory"; }
  bool can_record() const override { return !others_ || others_->can_record(); }

  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in,
                const char* what) override {
    const bool recorded = is_recorded(lane);
    const Sorted sent = sort(out, 1, recorded), got = sort(in, -1, recorded);
    note_wait(what, where_);          // the next wait of the host is for this, whoever waits
    lane.set_move_on(&mpi_progress);  // a rank that is waited for here may wait for a message
    mpi_progress();
    copies_.exchange(lane, sent.large, got.large);
    smalls_.exchange(lane, sent.small, got.small, recorded);
    if (!sent.rest.empty() || !got.rest.empty()) others_->exchange(lane, sent.rest, got.rest, what);
    if (!sent.large.empty() || !got.large.empty()) copies_.join(lane);
    lane.order();
  }

 private:
  /// What copies would take longer for.
  static constexpr int64_t kSmallBytes = int64_t{8} << 20;

  /// So that no two ranks begin with the same one: the next ones first when sending, the last ones when
  /// taking. The two ranks of a parcel decide the same, by its size.
  Sorted sort(std::span<const Parcel> parcels, int direction, bool recorded) const {
    Sorted by;
    for (int turn = 1; turn < size_; ++turn) {
      const int peer = (rank_ + direction * turn + size_) % size_;
      for (const Parcel& p : parcels) {
        if (p.peer != peer || p.bytes == 0) continue;
        const bool small = recorded || p.bytes <= kSmallBytes, reached = neighbours_->inbox(peer) != nullptr;
        (!reached ? by.rest : small ? by.small : by.large).push_back(p);
      }
    }
    return by;
  }

  int rank_, size_;
  std::string where_;
  std::unique_ptr<Transport> others_;
  std::unique_ptr<Neighbours> neighbours_;
  Copies copies_;
  Smalls smalls_;
};

}  // namespace

std::unique_ptr<Transport> make_peer_transport(std::unique_ptr<Neighbours> neighbours,
                                               std::unique_ptr<Transport> others, int rank, int size,
                                               const char* axis) {
  return std::make_unique<PeerTransport>(std::move(neighbours), std::move(others), rank, size, axis);
}

#endif

}  // namespace temper

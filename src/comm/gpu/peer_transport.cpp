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
#include "src/ops/peers/peer_exchange.h"
#endif

namespace temper {

#ifndef TEMPER_CUDA

std::unique_ptr<Transport> make_peer_transport(std::unique_ptr<Neighbours>, std::unique_ptr<Transport>, int,
                                               int, const std::string&) {
  CHECK(false, "GPUs that reach each other in a build without CUDA");
}

#else

namespace {

bool is_recorded(const Lane& lane) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream_of(lane), &capture));
  return capture != cudaStreamCaptureStatusNone;
}

/// The order in which ranks that exchange at once send. In turn `t` a rank sends to the one that comes t
/// after it, once the rank that sent there in the turn before has done so: were two to send to the same one,
/// they would share its link, and that of another would be idle.
class SendTurns {
 public:
  SendTurns(const Neighbours& neighbours, int rank, int size)
      : neighbours_(neighbours), rank_(rank), size_(size) {}

  int after(int ranks) const { return (rank_ + ranks + size_) % size_; }
  void begin(Lane& lane, int turn) const {
    const int before = after(turn == 1 ? 2 : 1);
    if (before != rank_)
      neighbours_.own().numbers->wait(lane, Inbox::number(Inbox::turns, neighbours_.number(before)), done_);
  }
  void end(Lane& lane, int turn) {
    ++done_;
    const int next = after(turn == size_ - 1 ? -2 : -1);
    if (next != rank_)
      neighbours_.inbox(next)->numbers->write(lane, Inbox::number(Inbox::turns, neighbours_.own().owner),
                                              done_);
  }
  uint32_t done() const { return done_; }

 private:
  const Neighbours& neighbours_;
  int rank_, size_;
  uint32_t done_ = 0;  // of all exchanges
};

/// Large parcels, by copy engines: of all that a GPU sends at once only one, which has its whole link.
class Copies {
 public:
  Copies(const Neighbours& neighbours, int rank, int size)
      : neighbours_(neighbours), turns_(neighbours, rank, size), peers_(static_cast<size_t>(size)) {}

  /// `all`: of all ranks at once.
  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in, bool all) {
    in_rounds(lane, out, longest(in), all, [&](int64_t at) {
      for (const Parcel& p : in)
        if (at < p.bytes) take(piece(p, at));
    });
  }
  /// Exchanges with all ranks at once; what comes is added where it lies.
  void exchange_sum(Lane& lane, std::span<const Parcel> out, const RankSum& sum) {
    const int64_t element = dtype_size(sum.own.dtype), all = sum.own.size(),
                  step = Inbox::kPlaceBytes / element;
    in_rounds(lane, out, sum.own.bytes(), /*all=*/true, [&](int64_t at) {
      if (const int64_t begin = at / element; begin < all) add(sum.piece(begin, std::min(step, all - begin)));
    });
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
      own.numbers->set(Inbox::number(Inbox::turns, neighbours_.number(rank)), turns_.done() + kFar);
    }
  }
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  static int64_t longest(std::span<const Parcel> list) {
    int64_t bytes = 0;
    for (const Parcel& p : list) bytes = std::max(bytes, p.bytes);
    return bytes;
  }
  /// A round has a piece of each parcel: were all streams of a GPU one queue, a piece would wait only for
  /// those of rounds before.
  template <class TakePieces>
  void in_rounds(Lane& lane, std::span<const Parcel> out, int64_t longest_in, bool all,
                 TakePieces&& take_pieces) {
    if (out.empty() && longest_in == 0) return;
    sends_.follow(lane);
    takes_.follow(lane);
    const int64_t end = std::max(longest(out), longest_in);
    for (int64_t at = 0; at < end; at += Inbox::kPlaceBytes) {
      for (int turn = 1; turn < std::ssize(peers_); ++turn) {
        if (all) turns_.begin(sends_, turn);
        for (const Parcel& p : out)
          if (p.peer == turns_.after(turn) && at < p.bytes) send(piece(p, at));
        if (all) turns_.end(sends_, turn);
      }
      take_pieces(at);
    }
  }
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
    copy(takes_, p.data, wait_for_piece(p.peer), p.bytes);
    say_taken(p.peer);
  }
  /// A piece of every rank.
  void add(const RankSum& sum) {
    std::vector<const void*> parts(peers_.size(), sum.own.data);
    for (int rank = 0; rank < std::ssize(peers_); ++rank)
      if (rank != sum.rank) parts[static_cast<size_t>(rank)] = wait_for_piece(rank);
    takes_.order();  // no kernel before that one ends with what is waited for here
    sum_ranks(takes_, sum, parts);
    for (int rank = 0; rank < std::ssize(peers_); ++rank)
      if (rank != sum.rank) say_taken(rank);
  }
  /// Where the next one of the rank has come to, for what comes on takes_.
  const char* wait_for_piece(int rank) {
    const Inbox& here = neighbours_.own();
    Peer& from = peer(rank);
    const uint32_t number = from.taken++;
    here.numbers->wait(takes_, Inbox::number(Inbox::came, neighbours_.number(rank)), from.taken);
    return here.place(neighbours_.number(rank), number);
  }
  void say_taken(int rank) {
    neighbours_.inbox(rank)->numbers->write(takes_, Inbox::number(Inbox::taken, neighbours_.own().owner),
                                            peer(rank).taken);
  }

  const Neighbours& neighbours_;
  SendTurns turns_;
  std::vector<Peer> peers_;  // by rank
  Lane sends_{Device::cuda, Turn::first}, takes_{Device::cuda, Turn::first};
};

/// Small parcels, by a kernel.
class Smalls {
 public:
  explicit Smalls(const Neighbours& neighbours) : neighbours_(neighbours) {
    CUDA_CHECK(cudaEventCreateWithFlags(&last_done_, cudaEventDisableTiming));
  }
  ~Smalls() { (void)cudaEventDestroy(last_done_); }
  Smalls(const Smalls&) = delete;
  Smalls& operator=(const Smalls&) = delete;

  /// Parcels of a rank side by side. Calls are in turn whatever lanes they are on; those of a graph have its
  /// order.
  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in, bool recorded) {
    if (out.empty() && in.empty()) return;
    in_turn(lane, recorded,
            [&] { exchange_small(lane, flows(out, true), flows(in, false), neighbours_.stop_word()); });
  }
  /// A parcel of each of so many ranks, added up.
  void exchange_sum(Lane& lane, std::span<const Parcel> out, const RankSum& sum, int ranks, bool recorded) {
    std::vector<SmallFlow> in;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != sum.rank) in.push_back(flow(rank, false));
    in_turn(lane, recorded,
            [&] { exchange_small_sum(lane, flows(out, true), in, sum, neighbours_.stop_word()); });
  }
  void wait() const { CUDA_CHECK(cudaEventSynchronize(last_done_)); }

 private:
  template <class Launch>
  void in_turn(Lane& lane, bool recorded, Launch&& launch) {
    if (recorded) return launch();
    if (last_ != lane.stream()) {
      CUDA_CHECK(cudaStreamWaitEvent(stream_of(lane), last_done_));
      lane.order();
    }
    launch();
    CUDA_CHECK(cudaEventRecord(last_done_, stream_of(lane)));
    last_ = lane.stream();
  }
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
  const void* last_ = nullptr;  // the stream that had the last one
  cudaEvent_t last_done_ = nullptr;
};

/// Parcels of one direction by what carries them.
struct Sorted {
  std::vector<Parcel> large, small, rest;
};

class PeerTransport : public Transport {
 public:
  PeerTransport(std::unique_ptr<Neighbours> neighbours, std::unique_ptr<Transport> others, int rank, int size,
                const std::string& axis)
      : rank_(rank),
        size_(size),
        where_(fmt::format("{} ranks of one host ({})", size, axis)),
        others_(std::move(others)),
        neighbours_(std::move(neighbours)),
        copies_(*neighbours_, rank, size),
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
    carry(lane, out, in, /*all=*/false, what);
  }
  void exchange_all(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in,
                    const char* what) override {
    carry(lane, out, in, /*all=*/!others_, what);
  }
  bool adds() const override { return !others_; }
  void exchange_sum(Lane& lane, std::span<const Parcel> out, const RankSum& sum, const char* what) override {
    const bool recorded = is_recorded(lane), takes = !sum.own.empty(),
               small = takes && is_small(sum.own.bytes(), recorded), large = takes && !small;
    const Sorted sent = sort(out, 1, recorded);
    begin(lane, what);
    if (large)
      copies_.exchange_sum(lane, sent.large, sum);
    else
      copies_.exchange(lane, sent.large, {}, /*all=*/true);
    if (small)
      smalls_.exchange_sum(lane, sent.small, sum, size_, recorded);
    else
      smalls_.exchange(lane, sent.small, {}, recorded);
    if (!sent.large.empty() || large) copies_.join(lane);
    lane.order();
  }

 private:
  void carry(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in, bool all,
             const char* what) {
    const bool recorded = is_recorded(lane);
    const Sorted sent = sort(out, 1, recorded), got = sort(in, -1, recorded);
    begin(lane, what);
    copies_.exchange(lane, sent.large, got.large, all);
    smalls_.exchange(lane, sent.small, got.small, recorded);
    if (!sent.rest.empty() || !got.rest.empty()) others_->exchange(lane, sent.rest, got.rest, what);
    if (!sent.large.empty() || !got.large.empty()) copies_.join(lane);
    lane.order();
  }
  void begin(Lane& lane, const char* what) const {
    note_wait(what, where_);          // the next wait of the host is for this, whoever waits
    lane.set_move_on(&mpi_progress);  // a rank that is waited for here may wait for a message
    mpi_progress();
  }
  /// What copies would take longer for, and all in a graph. The two ranks of a parcel decide the same.
  static bool is_small(int64_t bytes, bool recorded) { return recorded || bytes <= int64_t{8} << 20; }

  /// So that no two ranks begin with the same one: the next ones first when sending, the last ones when
  /// taking.
  Sorted sort(std::span<const Parcel> parcels, int direction, bool recorded) const {
    Sorted by;
    for (int turn = 1; turn < size_; ++turn) {
      const int peer = (rank_ + direction * turn + size_) % size_;
      for (const Parcel& p : parcels) {
        if (p.peer != peer || p.bytes == 0) continue;
        const bool reached = neighbours_->inbox(peer) != nullptr;
        (!reached ? by.rest : is_small(p.bytes, recorded) ? by.small : by.large).push_back(p);
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
                                               const std::string& axis) {
  return std::make_unique<PeerTransport>(std::move(neighbours), std::move(others), rank, size, axis);
}

#endif

}  // namespace temper

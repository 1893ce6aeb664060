#define OMPI_SKIP_MPICXX 1  // the removed C++ bindings do not compile without warnings
#include <mpi.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/comm/alone/one_rank.h"
#include "src/comm/gpu/gpu_transport.h"
#include "src/comm/mpi_check.h"
#include "src/comm/mpi_comm.h"
#include "src/comm/mpi_wait.h"
#include "src/core/process/progress.h"

namespace temper {

void mpi_wait(std::vector<MPI_Request>& requests, int rank, const char* what, const std::string& where,
              double limit_seconds) {
  const auto all_done = [&] {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return done != 0;
  };
  wait_until(all_done, rank, what, where, limit_seconds);
  note_progress();
}

namespace {

constexpr int64_t kMessageBytes = int64_t{64} << 20;  // MPI counts stay far below 2^31
// What goes in each direction at once, and else in a step.
constexpr int64_t kAtOnceBytes = int64_t{1} << 30, kStepBytes = int64_t{64} << 20;

/// Parcels of host memory, straight from and to where they lie.
class HostTransport : public Transport {
 public:
  HostTransport(MPI_Comm comm, const std::string& axis, double limit_seconds)
      : comm_(comm), axis_(axis), limit_seconds_(limit_seconds) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~HostTransport() override { MPI_Comm_free(&comm_); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* carrier() const override { return "MPI"; }

  void exchange(Lane&, std::span<const Parcel> out, std::span<const Parcel> in, const char* what) override {
    constexpr int kTag = 1;
    std::vector<MPI_Request> requests;
    for (const Parcel& p : in)
      for_each_message(p, [&](void* data, int bytes) {
        check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, p.peer, kTag, comm_, &requests.emplace_back()),
                  "MPI_Irecv");
      });
    for (const Parcel& p : out)
      for_each_message(p, [&](void* data, int bytes) {
        check_mpi(MPI_Isend(data, bytes, MPI_BYTE, p.peer, kTag, comm_, &requests.emplace_back()),
                  "MPI_Isend");
      });
    mpi_wait(requests, rank_, what, fmt::format("a collective of {} ranks ({})", size_, axis_),
             limit_seconds_);
  }

 private:
  template <class Body>
  static void for_each_message(const Parcel& p, Body&& body) {
    for (int64_t at = 0; at < p.bytes; at += kMessageBytes)
      body(static_cast<char*>(p.data) + at, static_cast<int>(std::min(kMessageBytes, p.bytes - at)));
  }

  MPI_Comm comm_;
  std::string axis_;
  double limit_seconds_;
  int rank_ = 0, size_ = 1;
};

/// Parcels of device memory by way of pinned host memory, for ranks that share a GPU or have no NCCL. At
/// once, since the other side may take all of them before it sends what is taken here; what is too much for
/// that comes from calls of all ranks. Those go step by step: parcels are cut alike on both sides, and ranks
/// go through the steps in the same order, so that none waits for a later step of another.
class StagedTransport : public Transport {
 public:
  explicit StagedTransport(std::unique_ptr<Transport> host)
      : host_(std::move(host)),
        piece_(kStepBytes / std::max(1, host_->size() - 1) / kAlignment * kAlignment) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const char* carrier() const override { return "MPI, by way of host memory"; }

  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in,
                const char* what) override {
    const Pieces sent = pieces(out), got = pieces(in);
    const bool at_once = bytes_of(sent) <= kAtOnceBytes && bytes_of(got) <= kAtOnceBytes;
    for (auto from = sent.begin(), to = got.begin(); from != sent.end() || to != got.end();) {
      const Step last = at_once ? kLastStep : std::min(step(from, sent), step(to, got));
      exchange_now(lane, take(from, sent, last), take(to, got, last), what);
    }
  }

 private:
  static constexpr int64_t kAlignment = 256;
  /// What a piece is: which parcel of its two ranks, and where in it.
  using Step = std::pair<int64_t, int64_t>;
  static constexpr Step kLastStep{std::numeric_limits<int64_t>::max(), 0};
  struct Piece {
    Step step;
    Parcel parcel;
  };
  using Pieces = std::vector<Piece>;

  /// Pinned memory for so many bytes at least.
  struct Pinned {
    device::PinnedMemory memory;
    int64_t bytes = 0;

    char* for_bytes(int64_t needed) {
      if (needed > bytes) memory = device::make_pinned(bytes = std::max(needed, kStepBytes));
      return memory.get();
    }
  };

  void exchange_now(Lane& lane, const Pieces& sent, const Pieces& got, const char* what) {
    const std::vector<Parcel> pinned = side_by_side(out_.for_bytes(bytes_of(sent)), sent),
                              came = side_by_side(in_.for_bytes(bytes_of(got)), got);
    for (size_t i = 0; i < sent.size(); ++i)
      device::copy_to_pinned(lane, pinned[i].data, sent[i].parcel.data, pinned[i].bytes);
    lane.wait();
    host_->exchange(lane, pinned, came, what);
    for (size_t i = 0; i < got.size(); ++i)
      device::copy_to_device(lane, got[i].parcel.data, came[i].data, came[i].bytes);
    lane.wait();  // the pinned memory is free
  }
  static int64_t bytes_of(const Pieces& pieces) {
    return std::accumulate(pieces.begin(), pieces.end(), int64_t{0},
                           [](int64_t sum, const Piece& piece) { return sum + piece.parcel.bytes; });
  }
  /// By step: of each at most one for a rank, so that those of a step fit.
  Pieces pieces(std::span<const Parcel> parcels) const {
    Pieces list;
    std::vector<int64_t> turns(static_cast<size_t>(size()));
    for (const Parcel& p : parcels) {
      const int64_t turn = turns[static_cast<size_t>(p.peer)]++;
      for (int64_t at = 0; at < p.bytes; at += piece_)
        list.push_back(
            {{turn, at}, {p.peer, static_cast<char*>(p.data) + at, std::min(piece_, p.bytes - at)}});
    }
    std::ranges::stable_sort(list, {}, &Piece::step);
    return list;
  }
  static Step step(Pieces::const_iterator next, const Pieces& of) {
    return next != of.end() ? next->step : kLastStep;
  }
  static Pieces take(Pieces::const_iterator& next, const Pieces& of, Step last) {
    const auto begin = next;
    while (next != of.end() && next->step <= last) ++next;
    return {begin, next};
  }
  static std::vector<Parcel> side_by_side(char* pinned, const Pieces& pieces) {
    std::vector<Parcel> list;
    for (const auto& [step, parcel] : pieces) {
      list.push_back({parcel.peer, pinned, parcel.bytes});
      pinned += parcel.bytes;
    }
    return list;
  }

  std::unique_ptr<Transport> host_;
  Pinned out_, in_;
  int64_t piece_;
};

std::unique_ptr<Transport> gpu_transport(MPI_Comm comm, const std::string& axis, double limit_seconds) {
  auto host = std::make_unique<HostTransport>(comm, axis, limit_seconds);
  MPI_Comm copy = MPI_COMM_NULL;
  note_wait("MPI_Comm_dup", axis);
  check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  note_progress();
  const std::unique_ptr<Comm> all = make_mpi_comm(copy, limit_seconds);
  if (std::unique_ptr<Transport> direct = make_gpu_transport(*all, axis, limit_seconds)) return direct;
  return std::make_unique<StagedTransport>(std::move(host));
}

}  // namespace

std::unique_ptr<Collectives> MpiSession::make_collectives(int color, int key, Device device,
                                                          const std::string& axis,
                                                          double wait_limit_seconds) const {
  if (!farewell_) return color < 0 ? nullptr : collectives_of_one();
  note_wait("MPI_Comm_split", "all ranks");
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, &comm), "MPI_Comm_split");
  note_progress();
  if (color < 0) return nullptr;
  if (device == Device::cuda)
    return std::make_unique<Collectives>(gpu_transport(comm, axis, wait_limit_seconds));
  return std::make_unique<Collectives>(std::make_unique<HostTransport>(comm, axis, wait_limit_seconds));
}

}  // namespace temper

#define OMPI_SKIP_MPICXX 1  // the removed C++ bindings do not compile without warnings
#include <mpi.h>

#include <algorithm>

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
constexpr int64_t kPinnedBytes = int64_t{64} << 20;   // of each direction

/// Parcels of host memory, straight from and to where they lie.
class HostTransport : public Transport {
 public:
  HostTransport(MPI_Comm comm, const char* axis, double limit_seconds)
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
  const char* axis_;
  double limit_seconds_;
  int rank_ = 0, size_ = 1;
};

/// Parcels of device memory by way of pinned host memory, for ranks that share a GPU. Every parcel is cut
/// alike on both sides; the pieces of one round travel together, so that no rank waits for a later round of
/// another.
class StagedTransport : public Transport {
 public:
  explicit StagedTransport(std::unique_ptr<Transport> host)
      : host_(std::move(host)),
        piece_(kPinnedBytes / std::max(1, host_->size() - 1) / kAlignment * kAlignment) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const char* carrier() const override { return "MPI, by way of host memory"; }

  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in,
                const char* what) override {
    if (!out_) out_ = device::make_pinned(kPinnedBytes), in_ = device::make_pinned(kPinnedBytes);
    int64_t longest = 0;
    for (const std::span<const Parcel> list : {out, in}) {
      CHECK(std::ssize(list) < size(), "{} parcels for {} ranks", list.size(), size());
      for (const Parcel& p : list) longest = std::max(longest, p.bytes);
    }
    for (int64_t at = 0; at < longest; at += piece_) {
      const std::vector<Parcel> sent = pieces(out, at, out_.get()), got = pieces(in, at, in_.get());
      for (size_t i = 0; i < out.size(); ++i)
        device::copy_to_pinned(lane, sent[i].data, place(out[i], at), sent[i].bytes);
      lane.wait();
      host_->exchange(lane, sent, got, what);
      for (size_t i = 0; i < in.size(); ++i)
        device::copy_to_device(lane, place(in[i], at), got[i].data, got[i].bytes);
      lane.wait();  // the pinned memory is free for the next round
    }
  }

 private:
  static constexpr int64_t kAlignment = 256;

  static void* place(const Parcel& p, int64_t at) {
    return static_cast<char*>(p.data) + std::min(at, p.bytes);
  }
  /// The part of each parcel that begins at `at`, side by side in pinned memory.
  std::vector<Parcel> pieces(std::span<const Parcel> parcels, int64_t at, char* pinned) const {
    std::vector<Parcel> list;
    for (const Parcel& p : parcels) {
      list.push_back({p.peer, pinned, std::clamp<int64_t>(p.bytes - at, 0, piece_)});
      pinned += piece_;
    }
    return list;
  }

  std::unique_ptr<Transport> host_;
  device::PinnedMemory out_, in_;  // from the first exchange on
  int64_t piece_;
};

std::unique_ptr<Transport> gpu_transport(MPI_Comm comm, const char* axis, double limit_seconds) {
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

std::unique_ptr<Collectives> MpiSession::make_collectives(int color, int key, Device device, const char* axis,
                                                          double wait_limit_seconds) const {
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

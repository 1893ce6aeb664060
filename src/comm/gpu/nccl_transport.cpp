#include "src/comm/gpu/nccl_transport.h"

#include "src/comm/mpi_check.h"
#include "src/core/process/cuda_version.h"

#ifdef TEMPER_CUDA
#include <dlfcn.h>
#include <nccl.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "src/core/cuda.h"
#include "src/core/device.h"
#include "src/core/process/progress.h"
#endif

namespace temper {

#ifndef TEMPER_CUDA

bool nccl_is_here() { return false; }
std::string nccl_version() { return cuda_version(); }
NcclId make_nccl_id() { CHECK(false, "NCCL in a build without CUDA"); }
std::unique_ptr<Transport> make_nccl_transport(const NcclId&, int, int, const std::string&, double) {
  CHECK(false, "NCCL in a build without CUDA");
}

#else

namespace {

/// The functions that are used.
struct Nccl {
  decltype(&::ncclGetVersion) version = nullptr;
  decltype(&::ncclGetUniqueId) unique_id = nullptr;
  decltype(&::ncclCommInitRankConfig) init = nullptr;
  decltype(&::ncclCommFinalize) finalize = nullptr;
  decltype(&::ncclCommDestroy) destroy = nullptr;
  decltype(&::ncclCommAbort) abort = nullptr;
  decltype(&::ncclCommGetAsyncError) async_error = nullptr;
  decltype(&::ncclGetErrorString) error_text = nullptr;
  decltype(&::ncclGetLastError) last_error = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) recv = nullptr;
};

/// Opened once; it stays open, since it registers handlers that run when the process ends. Null: not here.
const Nccl* find_nccl() {
  static const std::unique_ptr<const Nccl> found = []() -> std::unique_ptr<const Nccl> {
    // What it adds up itself on a switch has another order of additions; nothing here asks it to, and its
    // set-up takes memory and time.
    ::setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
    void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    auto nccl = std::make_unique<Nccl>();
    bool whole = true;
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)> >(::dlsym(library, name));
      whole = whole && function != nullptr;
    };
    get(nccl->version, "ncclGetVersion");
    get(nccl->unique_id, "ncclGetUniqueId");
    get(nccl->init, "ncclCommInitRankConfig");
    get(nccl->finalize, "ncclCommFinalize");
    get(nccl->destroy, "ncclCommDestroy");
    get(nccl->abort, "ncclCommAbort");
    get(nccl->async_error, "ncclCommGetAsyncError");
    get(nccl->error_text, "ncclGetErrorString");
    get(nccl->last_error, "ncclGetLastError");
    get(nccl->group_start, "ncclGroupStart");
    get(nccl->group_end, "ncclGroupEnd");
    get(nccl->send, "ncclSend");
    get(nccl->recv, "ncclRecv");
    return whole ? std::move(nccl) : nullptr;
  }();
  return found.get();
}
const Nccl& nccl() {
  const Nccl* const found = find_nccl();
  CHECK(found != nullptr, "NCCL is used and not here");
  return *found;
}

[[noreturn]] void fail_nccl(ncclResult_t code, ncclComm_t comm, const char* what, const std::string& where) {
  const char* const more = comm != nullptr ? nccl().last_error(comm) : nullptr;
  fail(Exit::retry,
       {.what = fmt::format("NCCL failed in '{}'", what),
        .where = where,
        .why = fmt::format("{}{}{}", nccl().error_text(code), more && *more ? ": " : "", more ? more : ""),
        .fix = "see what NCCL prints with NCCL_DEBUG=WARN; a run goes on from its newest checkpoint"});
}

/// Queues an exchange of one communicator.
struct Exchange {
  ncclComm_t comm;
  cudaStream_t stream;
  std::vector<Parcel> out, in;

  ncclResult_t operator()() const {
    if (const ncclResult_t code = nccl().group_start(); code != ncclSuccess) return code;
    ncclResult_t bad = ncclSuccess;
    for (const Parcel& p : out)
      if (p.bytes > 0 && bad == ncclSuccess)
        bad = nccl().send(p.data, static_cast<size_t>(p.bytes), ncclInt8, p.peer, comm, stream);
    for (const Parcel& p : in)
      if (p.bytes > 0 && bad == ncclSuccess)
        bad = nccl().recv(p.data, static_cast<size_t>(p.bytes), ncclInt8, p.peer, comm, stream);
    const ncclResult_t end = nccl().group_end();
    return bad != ncclSuccess ? bad : end;
  }
};

/// NCCL's calls queue work and return, but for those that wait for other ranks: these are made on a thread of
/// their own, beside which messages of MPI move on, with a limit. (A communicator that never blocks starts a
/// thread for every exchange, which costs 80 us.)
class NcclTransport : public Transport {
 public:
  NcclTransport(const NcclId& id, int rank, int size, const std::string& axis, double limit_seconds)
      : rank_(rank),
        size_(size),
        where_(fmt::format("NCCL among {} ranks ({})", size, axis)),
        limit_seconds_(limit_seconds),
        connected_(static_cast<size_t>(size)),
        greetings_(device::make_pinned(size + 1)) {
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof id);
    std::memcpy(&unique, id.data(), sizeof unique);
    const auto joined = std::make_shared<ncclComm_t>();
    wait_for(
        [=] {
          ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
          return nccl().init(joined.get(), size, unique, rank, &config);
        },
        "ranks join", limit_seconds);
    comm_ = *joined;
  }
  ~NcclTransport() override {
    // Beside an error other ranks may never come to what is queued here.
    if (std::uncaught_exceptions() > 0 || !finish()) (void)nccl().abort(comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* carrier() const override { return "NCCL"; }
  bool can_record() const override { return true; }

  void exchange(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in,
                const char* what) override {
    note_wait(what, where_);          // the next wait of the host is for this, whoever waits
    lane.set_move_on(&mpi_progress);  // a rank that is waited for here may wait for a message
    mpi_progress();
    connect(lane, out, in, what);
    check(Exchange{comm_, stream_of(lane), {out.begin(), out.end()}, {in.begin(), in.end()}}(), what);
    ncclResult_t state = ncclSuccess;
    check(nccl().async_error(comm_, &state), what);
    check(state, what);
    lane.order();
  }

 private:
  void check(ncclResult_t code, const char* what) const {
    if (code != ncclSuccess) fail_nccl(code, comm_, what, where_);
  }
  /// NCCL connects two ranks when they first exchange something, for which both have to come and to name the
  /// same directions. Their calls may differ (comm/transport.h), so a byte goes both ways before them.
  void connect(Lane& lane, std::span<const Parcel> out, std::span<const Parcel> in, const char* what) {
    Exchange greeting{comm_, stream_of(lane), {}, {}};
    for (const std::span<const Parcel> list : {out, in})
      for (const Parcel& p : list) {
        if (p.bytes == 0 || p.peer < 0 || p.peer >= size_) continue;  // NCCL refuses who is not there
        if (std::exchange(connected_[static_cast<size_t>(p.peer)], 1)) continue;
        greeting.out.push_back({p.peer, greetings_.get() + size_, 1});
        greeting.in.push_back({p.peer, greetings_.get() + p.peer, 1});
      }
    if (!greeting.out.empty()) wait_for(greeting, what, limit_seconds_);
  }
  /// A call that other ranks have to make, too. Beyond the limit its thread is left to itself: the process
  /// ends soon.
  template <class Call>
  void wait_for(const Call& call, const char* what, double limit_seconds) const {
    const auto result = std::make_shared<std::atomic<int> >(kUnderWay);
    int gpu = 0;
    CUDA_CHECK(cudaGetDevice(&gpu));
    std::thread([=] {
      (void)cudaSetDevice(gpu);
      *result = call();
    }).detach();
    const auto done = [&] {
      mpi_progress();
      return *result != kUnderWay;
    };
    wait_until(done, rank_, what, where_, limit_seconds);
    check(static_cast<ncclResult_t>(result->load()), what);
  }
  /// All that is queued is done and all ranks have come here. False: not within seconds.
  bool finish() noexcept {
    constexpr double kSeconds = 10;
    try {
      wait_for([comm = comm_] { return nccl().finalize(comm); }, "end", kSeconds);
      return nccl().destroy(comm_) == ncclSuccess;
    } catch (const std::exception&) {
      return false;
    }
  }

  static constexpr int kUnderWay = -1;
  int rank_, size_;
  std::string where_;
  double limit_seconds_;
  ncclComm_t comm_ = nullptr;
  std::vector<char> connected_;     // by rank
  device::PinnedMemory greetings_;  // a byte from each rank, and the one that goes to them
};

}  // namespace

bool nccl_is_here() { return find_nccl() != nullptr; }

std::string nccl_version() {
  int number = 0;
  if (!nccl_is_here() || nccl().version(&number) != ncclSuccess) return "none found";
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

NcclId make_nccl_id() {
  ncclUniqueId unique;
  if (const ncclResult_t code = nccl().unique_id(&unique); code != ncclSuccess)
    fail_nccl(code, nullptr, "id of a communicator", "NCCL");
  NcclId id;
  std::memcpy(id.data(), &unique, sizeof unique);
  return id;
}

std::unique_ptr<Transport> make_nccl_transport(const NcclId& id, int rank, int size, const std::string& axis,
                                               double limit_seconds) {
  return std::make_unique<NcclTransport>(id, rank, size, axis, limit_seconds);
}

#endif

}  // namespace temper

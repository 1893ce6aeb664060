#include "src/comm/mpi_comm.h"

#define OMPI_SKIP_MPICXX 1  // the removed C++ bindings do not compile without warnings
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <future>
#include <limits>
#include <numeric>
#include <system_error>

#include "src/comm/alone/launcher.h"
#include "src/comm/alone/one_rank.h"
#include "src/comm/mpi_check.h"
#include "src/comm/mpi_wait.h"
#include "src/comm/shared_memory.h"
#include "src/comm/short_turns.h"
#include "src/core/process/local_parent.h"
#include "src/core/process/progress.h"
#include "src/core/process/stop_signal.h"
#include "src/core/stopwatch.h"
#include "src/core/threads/quiet_thread.h"

namespace temper {

namespace {

constexpr int64_t kChunkBytes = int64_t{64} << 20;  // MPI counts stay far below 2^31

class MpiComm : public Comm {
 public:
  MpiComm(MPI_Comm comm, double limit_seconds) : comm_(comm), limit_seconds_(limit_seconds) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiComm() override { MPI_Comm_free(&comm_); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void barrier(const char* what) override {
    MPI_Request request;
    check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
    wait({request}, what);
  }

  std::string broadcast(const std::string& bytes, int root, const char* what) override {
    int64_t size = rank_ == root ? static_cast<int64_t>(bytes.size()) : 0;
    broadcast_bytes(&size, sizeof size, root, what);
    std::string result = rank_ == root ? bytes : std::string(static_cast<size_t>(size), '\0');
    for (int64_t at = 0; at < size; at += kChunkBytes)
      broadcast_bytes(result.data() + at, std::min(kChunkBytes, size - at), root, what);
    return result;
  }

  std::vector<std::string> all_gather(const std::string& bytes, const char* what) override {
    std::vector<std::string> result;
    for (int root = 0; root < size_; ++root) result.push_back(broadcast(bytes, root, what));
    return result;
  }

  void all_reduce_sum(std::vector<double>& values, const char* what) override {
    const std::string mine(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
    const std::vector<std::string> all = all_gather(mine, what);
    std::fill(values.begin(), values.end(), 0.0);
    for (const std::string& part : all) {
      CHECK(part.size() == mine.size(), "{}: ranks reduce {} and {} bytes", what, part.size(), mine.size());
      const auto* v = reinterpret_cast<const double*>(part.data());
      for (size_t i = 0; i < values.size(); ++i) values[i] += v[i];
    }
  }

  double all_reduce_max(double value, const char* what) override {
    // MPI_MAX leaves open what becomes of NaN: it travels as a flag.
    const bool nan = std::isnan(value);
    const std::array<double, 2> mine{nan ? 1.0 : 0.0, nan ? 0.0 : value};
    std::array<double, 2> largest{};
    MPI_Request request;
    check_mpi(MPI_Iallreduce(mine.data(), largest.data(), 2, MPI_DOUBLE, MPI_MAX, comm_, &request),
              "MPI_Iallreduce");
    wait({request}, what);
    return largest[0] > 0 ? std::numeric_limits<double>::quiet_NaN() : largest[1];
  }

 private:
  void broadcast_bytes(void* data, int64_t bytes, int root, const char* what) {
    MPI_Request request;
    check_mpi(MPI_Ibcast(data, static_cast<int>(bytes), MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
    wait({request}, what);
  }

  void wait(std::vector<MPI_Request> requests, const char* what) {
    mpi_wait(requests, rank_, what, fmt::format("a collective of {} ranks", size_), limit_seconds_);
  }

  MPI_Comm comm_;
  double limit_seconds_;
  int rank_ = 0, size_ = 1;
};

/// A signal has to wait: a rank that dies while it connects to mpirun can leave that waiting for ever, or end
/// it with a code of its own (PMIx 4.2).
void start_mpi(int* argc, char*** argv) {
  const HeldStopSignals held;
  ask_for_short_turns();
  int provided = 0;
  check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
}

MPI_Comm ranks_of_host() {
  MPI_Comm host;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  return host;
}

}  // namespace

/// A communicator that nothing else uses, so that a barrier on it fits to whatever the ranks were doing.
struct MpiSession::Farewell {
  MPI_Comm comm = MPI_COMM_NULL;
};

MpiSession::MpiSession(int* argc, char*** argv) {
  if (!started_by_launcher()) return;
  prepare_shared_memory();
  start_mpi(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm host = ranks_of_host();
  MPI_Comm_size(host, &ranks_on_node_);
  MPI_Comm_free(&host);
  farewell_ = std::make_unique<Farewell>();
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &farewell_->comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(farewell_->comm, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() {
  if (!farewell_ || !mpi_is_up()) return;
  constexpr double kAfterError = 1;
  const bool in_order = std::uncaught_exceptions() == 0;
  if (in_order) note_wait("MPI_Finalize", "all ranks");
  if (all_ranks_leave(in_order ? std::numeric_limits<double>::infinity() : kAfterError)) finalize();
}

/// All ranks have come: what is left is between MPI and its launcher.
void MpiSession::finalize() {
  note_wait("MPI_Finalize", "the launcher");
  std::promise<void> ended;
  const auto end_late = [&, done = ended.get_future().share()] {
    if (done.wait_for(std::chrono::duration<double>(kEndSeconds)) == std::future_status::ready) return;
    std::fprintf(stderr,
                 "temper: rank %d does not get out of MPI_Finalize\n  where: end of the job, pid %d\n"
                 "  why:   all ranks are done and %.0f s passed: MPI and its launcher do not find an end\n"
                 "  fix:   nothing is lost, all results are written; the same command goes on from there\n",
                 rank_, static_cast<int>(::getpid()), kEndSeconds);
    std::fflush(stderr);
    leave_at_once(static_cast<int>(Exit::hang));
  };
  std::thread limit;
  try {
    limit = quiet_thread(end_late);
  } catch (const std::system_error&) {  // no room for a thread: that is no reason not to end
  }
  MPI_Comm_free(&farewell_->comm);
  MPI_Finalize();
  ended.set_value();
  if (limit.joinable()) limit.join();
}

bool MpiSession::all_ranks_leave(double limit_seconds) {
  MPI_Request request;
  int done = 0;
  if (MPI_Ibarrier(farewell_->comm, &request) != MPI_SUCCESS) return false;
  for (const Stopwatch waited; !done && waited.seconds() < limit_seconds;) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (!done) ::usleep(1000);
  }
  return done != 0;
}

std::unique_ptr<Comm> MpiSession::make_comm_of_all(double wait_limit_seconds) const {
  std::vector<int> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return make_comm(all, wait_limit_seconds);
}

std::unique_ptr<Comm> MpiSession::make_comm(const std::vector<int>& ranks, double wait_limit_seconds) const {
  const auto at = std::find(ranks.begin(), ranks.end(), rank_);
  return make_comm(at == ranks.end() ? -1 : 0, static_cast<int>(at - ranks.begin()), wait_limit_seconds);
}

std::unique_ptr<Comm> make_mpi_comm(MPI_Comm comm, double limit_seconds) {
  return std::make_unique<MpiComm>(comm, limit_seconds);
}

std::unique_ptr<Comm> MpiSession::make_comm(int color, int key, double wait_limit_seconds) const {
  if (!farewell_) return color < 0 ? nullptr : std::make_unique<OneRank>();
  MPI_Comm comm = MPI_COMM_NULL;
  note_wait("MPI_Comm_split", "all ranks");
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, &comm), "MPI_Comm_split");
  note_progress();
  if (color < 0) return nullptr;
  return std::make_unique<MpiComm>(comm, wait_limit_seconds);
}

std::unique_ptr<Comm> MpiSession::make_comm_of_host(double wait_limit_seconds) const {
  if (!farewell_) return std::make_unique<OneRank>();
  note_wait("MPI_Comm_split_type", "all ranks");
  const MPI_Comm host = ranks_of_host();
  note_progress();
  return std::make_unique<MpiComm>(host, wait_limit_seconds);
}

std::string MpiSession::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return std::string(text, static_cast<size_t>(length));
}

bool mpi_is_up() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

bool mpi_has_ended() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

void abort_all_ranks(Exit code) {
  if (mpi_is_up()) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
}

}  // namespace temper

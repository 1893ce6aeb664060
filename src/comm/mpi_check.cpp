#include "src/comm/mpi_check.h"

#define OMPI_SKIP_MPICXX 1  // the removed C++ bindings do not compile without warnings
#include <mpi.h>
#include <unistd.h>

#include "src/core/process/progress.h"
#include "src/core/stopwatch.h"

namespace temper {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(Exit::retry, {.what = fmt::format("{} failed", call),
                     .where = "MPI",
                     .why = std::string(text, static_cast<size_t>(length)),
                     .fix = "start the same command again; a run goes on from its newest checkpoint"});
}

void fail_hang(int rank, const char* what, const std::string& where, double waited_seconds,
               double limit_seconds) {
  fail(Exit::hang,
       {.what = fmt::format("rank {} waits too long in '{}'", rank, what),
        .where = where,
        .why = fmt::format("{:.0f} s passed, the limit is {:.0f} s", waited_seconds, limit_seconds),
        .fix = "a rank has died or is much slower; see its log, or raise cluster.watchdog_seconds"});
}

void mpi_progress() {
  int started = 0, ended = 0, found = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (started && !ended) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

void wait_until(const std::function<bool()>& done, int rank, const char* what, const std::string& where,
                double limit_seconds) {
  const Stopwatch watch;
  for (int64_t polls = 0; !done(); ++polls) {
    const double waited = watch.seconds();
    if (waited > limit_seconds) fail_hang(rank, what, where, waited, limit_seconds);
    if (polls <= 200) continue;
    note_wait(what, where);
    ::usleep(waited < 0.01 ? 20 : 200);
  }
}

}  // namespace temper

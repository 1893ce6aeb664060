#pragma once
// SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask a run to save and leave with exit code 75. Before there is anything
// to save, and the second time, they end the process at once with 128 + their number, but while MPI starts
// right after that. The same one within 2 s is no second one: `pkill -USR1 -f` and `scancel --full` reach a
// launcher, too, which hands it on. A SIGHUP that is ignored when the process starts (nohup) stays so.
// SIGPIPE is ignored: a run goes on when nobody reads what it prints. The handler only sets a flag. Under a
// parent of `--local` that is what decides about a second signal.

#include <array>
#include <csignal>

namespace temper {

/// While one lives these signals wait, for this thread and for those that start meanwhile. Handlers that are
/// installed meanwhile are gone afterwards.
class HeldStopSignals {
 public:
  HeldStopSignals();
  ~HeldStopSignals();
  HeldStopSignals(const HeldStopSignals&) = delete;
  HeldStopSignals& operator=(const HeldStopSignals&) = delete;

 private:
  sigset_t mask_;
  std::array<struct sigaction, 5> actions_;
};

/// Says on stderr that the signal ends the process, as a handler may: without memory or locks.
void tell_end_by(int signal);
/// The process was started with SIGHUP ignored (nohup), whatever libraries have made of it since.
bool ignores_hangup();
/// SIGHUP is as the process was started with again.
void give_hangup_back();
/// Until signals_ask() any of them ends the process.
void install_stop_signals();
/// From here on the first one asks.
void signals_ask();
bool stop_requested();
/// "SIGTERM": the one that asked; empty before.
const char* stop_signal_name();
/// Asked by what a launcher sends when it ends a job (SIGTERM, SIGINT).
bool ended_by_launcher();

}  // namespace temper

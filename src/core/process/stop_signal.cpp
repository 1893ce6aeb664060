#include "src/core/process/stop_signal.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "src/core/process/local_parent.h"

namespace temper {
namespace {

struct StopSignal {
  int number;
  const char* name;
};
constexpr StopSignal kSignals[] = {
    {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}};
constexpr std::array kHeld{SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGPIPE};

constexpr int64_t kSameMilliseconds = 2000;
constexpr int kMeant = 256;

// A signal handler can reach nothing else. Two threads may handle two signals at the same time.
std::atomic<int> requested = 0;         // the signal's number, and above it that of the one it stands for
std::atomic<int64_t> requested_at = 0;  // milliseconds; 0: not yet
std::atomic<bool> asks = false;
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

int64_t milliseconds() {
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
}

/// A parent (core/process/local_parent.h) hands every signal on as one, and says which it was.
void on_signal(int signal, siginfo_t* info, void*) {
  if (!asks) {
    if (!has_local_parent()) tell_end_by(signal);
    leave_at_once(128 + signal);
  }
  const bool by_parent = info->si_code == SI_QUEUE && has_local_parent();
  const int64_t now = milliseconds();
  int64_t never = 0;
  requested_at.compare_exchange_strong(never, now);  // before anybody finds the signal
  int before = 0;
  const int meant = by_parent ? info->si_value.sival_int : signal;
  if (requested.compare_exchange_strong(before, signal + kMeant * meant)) return;
  if (by_parent) return;  // after a second one it ends its ranks itself
  const bool same = before % kMeant == signal || has_local_parent();  // `pkill -f` reaches ranks and parent
  if (!same || now - requested_at > kSameMilliseconds) leave_at_once(128 + signal);
}

struct sigaction action_of(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action;
}

bool hangup_ignored = false;

/// Before libraries begin: UCX, which MPI may bring along, takes SIGHUP for itself as soon as it is loaded.
void look_at_hangup() {
  struct {
    void (*handler)(int);
    unsigned long flags, restorer, mask;
  } action = {};  // as the kernel has it: no library is ready yet
  ::syscall(SYS_rt_sigaction, SIGHUP, nullptr, &action, sizeof action.mask);
  hangup_ignored = action.handler == SIG_IGN;
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirstOfAll)() = look_at_hangup;

}  // namespace

bool ignores_hangup() { return hangup_ignored; }

void give_hangup_back() { ::signal(SIGHUP, hangup_ignored ? SIG_IGN : SIG_DFL); }

HeldStopSignals::HeldStopSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (size_t i = 0; i < actions_.size(); ++i) {
    sigaddset(&held, kHeld[i]);
    actions_[i] = action_of(kHeld[i]);
  }
  ::pthread_sigmask(SIG_BLOCK, &held, &mask_);
}

HeldStopSignals::~HeldStopSignals() {
  for (size_t i = 0; i < actions_.size(); ++i) ::sigaction(kHeld[i], &actions_[i], nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
}

void tell_end_by(int signal) {
  for (const StopSignal& s : kSignals) {
    if (s.number != signal) continue;
    constexpr char kBefore[] = "temper: ", kAfter[] = " before there was anything to save: ended\n";
    [[maybe_unused]] ssize_t told = ::write(STDERR_FILENO, kBefore, sizeof kBefore - 1);
    told = ::write(STDERR_FILENO, s.name, std::strlen(s.name));
    told = ::write(STDERR_FILENO, kAfter, sizeof kAfter - 1);
  }
}

void install_stop_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (const StopSignal& s : kSignals)
    if (s.number != SIGHUP || !ignores_hangup()) ::sigaction(s.number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void signals_ask() {
  asks = true;
  tell_local_parent(RankWord::asks);
}

bool stop_requested() { return requested != 0; }

const char* stop_signal_name() {
  for (const StopSignal& s : kSignals)
    if (s.number == requested / kMeant) return s.name;
  return "";
}

bool ended_by_launcher() {
  const int signal = requested % kMeant;
  return signal == SIGTERM || signal == SIGINT;
}

}  // namespace temper

#pragma once
// Threads beside the one that an owner works on.

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace temper {

/// A thread that no signal from outside reaches: handlers run on the thread that works and looks for what
/// they set. What a thread's own mistake raises (SIGSEGV and the like) still ends the process with its
/// report. std::system_error where the system starts no more threads.
template <class Body>
std::thread quiet_thread(Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t outside;
      ::sigfillset(&outside);
      for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&outside, own);
      ::pthread_sigmask(SIG_BLOCK, &outside, &before);
    }
    ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Blocked blocked;  // a new thread has the mask of the one that starts it
  return std::thread(std::forward<Body>(body));
}

}  // namespace temper

#include "src/comm/short_turns.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace temper {
namespace {

/// As sched_setattr(2) takes it: the C library has no type for it.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes), policy = SCHED_OTHER;
  uint64_t flags = 0x01;  // SCHED_FLAG_RESET_ON_FORK
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 100'000;  // the shortest that Linux grants
  uint64_t deadline_ns = 0, period_ns = 0;
};

}  // namespace

void ask_for_short_turns() noexcept {
  if (::sched_getscheduler(0) != SCHED_OTHER) return;
  SchedulingAttributes attributes;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace temper

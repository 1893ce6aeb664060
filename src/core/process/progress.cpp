#include "src/core/process/progress.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace temper {
namespace {

/// The one of this process.
struct Block {
  std::atomic<uint64_t> count = 0;
  std::atomic<bool> waits = false;
  std::mutex mutex;  // of what follows
  int64_t step = 0;
  Phase phase;
  WorkState work;
  char what[80] = {}, where[80] = {};
};
Block& block() {
  static Block one;
  return one;
}

template <size_t n>
void set_text(char (&to)[n], std::string_view from) {
  const size_t length = std::min(from.size(), n - 1);
  std::memcpy(to, from.data(), length);
  std::memset(to + length, 0, n - length);
}

}  // namespace

void enter_phase(const Phase& phase, int64_t step) {
  {
    const std::lock_guard lock(block().mutex);
    block().phase = phase;
    block().step = step;
  }
  note_progress();
}

void expect_work(int64_t pieces) {
  Block& b = block();
  const std::lock_guard lock(b.mutex);
  if (b.work.step != b.step || b.work.phase != b.phase) b.work = {.step = b.step, .phase = b.phase};
  b.work.total += pieces;
}

void note_work(int64_t pieces, int64_t tokens) {
  Block& b = block();
  note_progress();
  const std::lock_guard lock(b.mutex);
  b.work.done += pieces;
  b.work.tokens += tokens;
}

void note_progress() {
  block().count.fetch_add(1, std::memory_order_relaxed);
  block().waits.store(false, std::memory_order_relaxed);
}

void note_wait(std::string_view what, std::string_view where) {
  Block& b = block();
  const std::lock_guard lock(b.mutex);
  set_text(b.what, what);
  set_text(b.where, where);
  b.waits = true;
}

ProgressState progress_state() {
  Block& b = block();
  ProgressState s;
  s.count = b.count;
  s.waits = b.waits;
  const std::lock_guard lock(b.mutex);
  s.step = b.step;
  s.phase = b.phase;
  s.work = b.work;
  std::memcpy(s.what, b.what, sizeof s.what);
  std::memcpy(s.where, b.where, sizeof s.where);
  return s;
}

}  // namespace temper

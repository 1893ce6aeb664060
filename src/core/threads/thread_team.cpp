#include "src/core/threads/thread_team.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "src/core/check.h"
#include "src/core/process/progress.h"
#include "src/core/threads/quiet_thread.h"

// What orders what. The caller writes the loop (count_, piece_, body_, next_) before it opens the gate with a
// release, and a thread that enters acquires it: it sees the loop. A thread leaves with a release, and the
// caller acquires the gate that all have left: it sees what the pieces wrote, and may write the next loop,
// since nobody enters a closed gate. next_ only hands out numbers, so relaxed is enough. Wherever one side
// sleeps and the other wakes, both write first and then look at what the other wrote, in the one order of
// seq_cst operations: at least one of them sees the other, so no wake-up is lost.

namespace temper {
namespace {

/// Longer than the gaps between the loops of a pass; shorter than what a neighbour on the core would notice.
constexpr std::chrono::microseconds kSpin{50};
constexpr int kPausesPerLook = 32;  // at the clock

/// The loop that this thread is in.
struct Place {
  const ThreadTeam* team = nullptr;
  int index = 0;
};
thread_local Place place;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Whether `done` became true while spinning.
template <class Done>
bool spin_until(const Done& done) {
  if (done()) return true;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadTeam::ThreadTeam(int size) : size_(size) { CHECK(size > 0, "a team of {} threads", size); }

ThreadTeam::~ThreadTeam() {
  ended_.store(true, std::memory_order_relaxed);  // seen by all who see the count
  loops_.fetch_add(1, std::memory_order_seq_cst);
  loops_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

int ThreadTeam::index() const { return place.team == this ? place.index : 0; }

void ThreadTeam::start() {
  threads_.reserve(static_cast<size_t>(size_));
  try {
    for (int i = 1; i < size_; ++i) threads_.push_back(quiet_thread([this, i] { work(i); }));
  } catch (const std::system_error& e) {
    fail(Exit::environment,
         {.what = fmt::format("the system starts no more threads after {} of {}", threads_.size() + 1, size_),
          .where = "run.threads, --threads or OMP_NUM_THREADS",
          .why = e.what(),
          .fix = "ask for fewer threads, or raise the limit on them: ulimit -u, or pids.max "
                 "of the container or job"});
  }
}

void ThreadTeam::run(int64_t count, Piece piece, void* body) {
  const bool inside = place.team != nullptr;
  if (inside || count <= 1 || size_ <= 1 || in_use_.exchange(true, std::memory_order_acquire)) {
    for (int64_t i = 0; i < count; ++i) {
      piece(body, i);
      note_progress();
    }
    return;
  }
  struct Use {
    explicit Use(ThreadTeam& t) : team(t) { place = {&t, 0}; }
    ~Use() {
      place = {};
      team.in_use_.store(false, std::memory_order_release);  // after all that this caller wrote
    }
    ThreadTeam& team;
  };
  const Use use(*this);
  if (threads_.empty()) start();
  count_ = count;
  piece_ = piece;
  body_ = body;
  next_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  loops_.fetch_add(1, std::memory_order_seq_cst);  // and then looks for sleepers: see wait_for_loop
  if (sleeping_.load(std::memory_order_seq_cst) > 0) loops_.notify_all();
  take_pieces();
  wait_for_threads();
  if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
}

void ThreadTeam::take_pieces() {
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
    try {
      piece_(body_, i);
    } catch (...) {
      keep_exception(i);
    }
    if (place.index == 0) note_progress();  // of the caller alone: threads do not fight for the count
  }
}

/// Pieces before this one have all been handed out, so the first that throws is always among those that run.
void ThreadTeam::keep_exception(int64_t piece) noexcept {
  const std::lock_guard lock(exception_mutex_);
  if (!exception_ || piece < exception_piece_) {
    exception_ = std::current_exception();
    exception_piece_ = piece;
  }
  next_.store(count_, std::memory_order_relaxed);
}

/// The gate is closed to those who have not come; the others have pieces in hand.
void ThreadTeam::wait_for_threads() {
  gate_.fetch_and(~kOpen, std::memory_order_acquire);
  if (spin_until([&] { return gate_.load(std::memory_order_acquire) == 0; })) return;
  uint32_t gate = gate_.fetch_or(kAsleep, std::memory_order_seq_cst) | kAsleep;
  for (; gate != kAsleep; gate = gate_.load(std::memory_order_acquire)) gate_.wait(gate);
  gate_.store(0, std::memory_order_relaxed);
}

bool ThreadTeam::enter() {
  uint32_t gate = gate_.load(std::memory_order_relaxed);
  while (gate & kOpen)
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  return false;
}

/// The last one wakes the caller, if it sleeps: it said so in the gate, which no leaving overlooks.
void ThreadTeam::leave() {
  if (gate_.fetch_sub(1, std::memory_order_seq_cst) == (kAsleep | 1)) gate_.notify_one();
}

/// A thread counts itself as sleeping before it looks at loops_ for the last time (in wait): a loop that
/// began before is seen there, and one that begins later sees the sleeper.
void ThreadTeam::wait_for_loop(uint32_t seen) {
  if (spin_until([&] { return loops_.load(std::memory_order_acquire) != seen; })) return;
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  loops_.wait(seen, std::memory_order_seq_cst);
  sleeping_.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadTeam::work(int index) {
  place = {this, index};
  for (uint32_t seen = 0;;) {
    wait_for_loop(seen);
    // Before the gate: a loop that begins while this one is at work is not missed. Before the look at ended_,
    // which is set ahead of the last count: nobody waits for another one.
    seen = loops_.load(std::memory_order_acquire);
    if (ended_.load(std::memory_order_relaxed)) return;
    if (!enter()) continue;
    take_pieces();
    leave();
  }
}

}  // namespace temper

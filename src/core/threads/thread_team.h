#pragma once
// The threads that share the loops of one caller. Between two loops they spin for some microseconds, since
// the next loop mostly is near, and then sleep: a core that others need is left to them. A loop never waits
// for a thread that the system has not yet let run: it takes the pieces that are there, and whoever comes
// late finds none.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace temper {

class ThreadTeam {
 public:
  /// The caller is one of the `size` threads; the others start with the first loop.
  explicit ThreadTeam(int size);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  int size() const { return size_; }

  using Piece = void (*)(void* body, int64_t piece);
  /// piece(body, i) for i in [0, count), each once, handed out in ascending order to the threads that are
  /// free. Of pieces that throw, the first one's exception comes out, as from a plain loop; later pieces may
  /// be left out then. A loop inside of a piece, one that begins while another thread's is under way, and one
  /// in a forked child (which has none of the threads) run on their caller alone.
  void run(int64_t count, Piece piece, void* body);

  /// Which thread of this team the calling one is, in [0, size); 0 outside of the team's loops.
  int index() const;

 private:
  void start();
  void work(int index);
  bool enter();
  void leave();
  void take_pieces();
  void keep_exception(int64_t piece) noexcept;
  void wait_for_loop(uint32_t seen);
  void wait_for_threads();

  // Bits of gate_, above the number of threads that are inside.
  static constexpr uint32_t kOpen = uint32_t{1} << 31;    // the loop takes threads in
  static constexpr uint32_t kAsleep = uint32_t{1} << 30;  // its caller sleeps until the last one has left

  const int size_;
  std::vector<std::thread> threads_;
  std::atomic<bool> in_use_ = false;  // by a caller
  // The loop that is open: written by its caller while no other thread is inside.
  int64_t count_ = 0;
  Piece piece_ = nullptr;
  void* body_ = nullptr;
  std::mutex exception_mutex_;
  std::exception_ptr exception_;  // of the first piece that threw
  int64_t exception_piece_ = 0;
  // Each on a cache line of its own: all threads write the first two, and spin on the third.
  alignas(64) std::atomic<int64_t> next_ = 0;  // piece to hand out
  alignas(64) std::atomic<uint32_t> gate_ = 0;
  alignas(64) std::atomic<uint32_t> loops_ = 0;  // begun so far, and once more at the end
  std::atomic<bool> ended_ = false;
  alignas(64) std::atomic<int> sleeping_ = 0;  // threads that wait for a loop and no longer spin
};

}  // namespace temper

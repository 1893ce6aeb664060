#pragma once
// The memory that the bodies of requests share.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace temper {

/// The bytes of one body in a sum that all bodies share; given back when it goes. Thread-safe between bodies.
class BodyRoom {
 public:
  using Sum = std::shared_ptr<std::atomic<int64_t>>;
  BodyRoom(Sum sum, int64_t most) : sum_(std::move(sum)), most_(most) {}
  BodyRoom(BodyRoom&& other) noexcept
      : sum_(std::move(other.sum_)), most_(other.most_), held_(std::exchange(other.held_, 0)) {}
  ~BodyRoom() { give_back(); }

  /// Takes bytes more; none, and false, where the sum would go over its limit.
  bool take(int64_t bytes) {
    if (sum_->fetch_add(bytes) + bytes > most_) {
      sum_->fetch_sub(bytes);
      return false;
    }
    held_ += bytes;
    return true;
  }

  void give_back() {
    if (held_ > 0) sum_->fetch_sub(std::exchange(held_, 0));
  }

 private:
  Sum sum_;
  int64_t most_;
  int64_t held_ = 0;
};

}  // namespace temper

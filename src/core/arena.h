#pragma once
// Bump allocator for activations and workspaces: blocks of host memory, released by mark.
// The same order of calls gives the same addresses. Memory is not cleared. Not thread-safe: one per lane.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "src/core/tensor.h"

namespace temper {

class Arena {
 public:
  struct Mark {
    size_t block = 0;
    int64_t offset = 0;
  };

  /// Uninitialised memory, 64-byte aligned.
  void* allocate(int64_t bytes);
  Tensor make(std::initializer_list<int64_t> shape, DType dtype);
  Tensor zeros(std::initializer_list<int64_t> shape, DType dtype);
  Tensor like(const CTensor& t);

  Mark mark() const { return mark_; }
  void release(Mark mark) { mark_ = mark; }
  int64_t peak_bytes() const { return peak_; }

 private:
  struct FreeDeleter {
    void operator()(char* p) const;
  };
  struct Block {
    std::unique_ptr<char, FreeDeleter> data;
    int64_t size = 0;
    int64_t before = 0;  // bytes of all earlier blocks
  };
  std::vector<Block> blocks_;
  Mark mark_;
  int64_t peak_ = 0;
};

/// Everything allocated while a scope lives is given back at its end.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace temper

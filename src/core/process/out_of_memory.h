#pragma once
// The error of a part of the program that gets no memory, of the host or of a GPU. Who knows what was planned,
// and which keys make it less, adds to it (run/verbs/guard.h).

#include "src/core/process/memory_error.h"

namespace temper {

class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(Problem problem, MemoryUse use = MemoryUse::any)
      : Error(Exit::storage, std::move(problem)), use_(use) {}
  MemoryUse use() const { return use_; }

 private:
  MemoryUse use_;
};

}  // namespace temper

#pragma once
// The error of a part of the program that gets no memory, of the host or of a GPU. Who knows what was planned
// may add to it (run/verbs/guard.h).

#include "src/core/check.h"

namespace temper {

class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(Problem problem) : Error(Exit::storage, std::move(problem)) {}
};

}  // namespace temper

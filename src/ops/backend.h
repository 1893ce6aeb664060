#pragma once
// What a process computes with: the device, an arena in its memory, library handles, and the context of them.

#include <memory>

#include "src/core/ctx.h"

namespace temper {

class Backend {
 public:
  /// A GPU must have been found and selected (core/device.h).
  explicit Backend(Device device, int threads = 1);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  Ctx& ctx() { return ctx_; }

 private:
  struct Handles;
  Arena arena_;
  std::unique_ptr<Handles> handles_;
  Ctx ctx_;
};

}  // namespace temper

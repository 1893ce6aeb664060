#pragma once
// What a process computes with: a lane of a device with its library handles, scratch memory there, and the
// context of them.

#include "src/core/ctx.h"

namespace temper {

class Backend {
 public:
  /// On a device that only counts `threads` are those whose memory is counted. A GPU must have been found and
  /// selected (core/device.h).
  explicit Backend(Device device, int threads = 1);
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  Ctx& ctx() { return ctx_; }

 private:
  Arena scratch_;  // goes after the work of the lane
  Lane lane_;
  ThreadTeam team_;
  Ctx ctx_;
};

}  // namespace temper

#include "src/core/arena.h"

#include <algorithm>

namespace temper {
namespace {

constexpr int64_t kSmallestBlock = int64_t{16} << 20;
constexpr const char* kFix = "lower train.max_tokens_per_microbatch or rollout.kv_memory";

int64_t round_up(Device device, int64_t bytes) {
  const int64_t alignment = device == Device::cpu ? 64 : 256;
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

void* Arena::allocate(int64_t bytes) {
  CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  const int64_t size = round_up(device_, std::max<int64_t>(bytes, 1));
  while (mark_.block < blocks_.size() && mark_.offset + size > blocks_[mark_.block].size) {
    ++mark_.block;
    mark_.offset = 0;
  }
  if (mark_.block == blocks_.size()) {
    const int64_t before = blocks_.empty() ? 0 : blocks_.back().before + blocks_.back().size;
    const int64_t block = round_up(device_, std::max({size, kSmallestBlock, before}));  // doubles: few blocks
    auto* data = static_cast<char*>(device::allocate(device_, block, kFix));
    blocks_.push_back({std::unique_ptr<char, Release>(data, Release{device_}), block, before});
    mark_.offset = 0;
  }
  Block& block = blocks_[mark_.block];
  void* result = block.data.get() + mark_.offset;
  mark_.offset += size;
  peak_ = std::max(peak_, block.before + mark_.offset);
  return result;
}

Tensor Arena::make(std::initializer_list<int64_t> shape, DType dtype) {
  Tensor t = make_tensor(nullptr, dtype, shape);
  t.data = allocate(t.bytes());
  return t;
}

Tensor Arena::zeros(std::initializer_list<int64_t> shape, DType dtype) {
  Tensor t = make(shape, dtype);
  device::fill(device_, t.raw(), 0, t.bytes());
  return t;
}

Tensor Arena::like(const CTensor& t) {
  Tensor copy;
  static_cast<CTensor&>(copy) = t;
  copy.data = allocate(t.bytes());
  return copy;
}

}  // namespace temper

#include "src/core/process/unsent.h"

#include <unistd.h>

#include <cerrno>

namespace temper {

void Unsent::write(int descriptor) {
  while (any()) {
    const ssize_t wrote = ::write(descriptor, bytes_.data() + sent_, bytes_.size() - sent_);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) return;
    if (wrote < 0) break;
    sent_ += static_cast<size_t>(wrote);
  }
  bytes_.clear();
  sent_ = 0;
}

}  // namespace temper

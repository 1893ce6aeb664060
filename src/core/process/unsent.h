#pragma once
// Bytes for a pipe that does not block, which go as its reader takes them.

#include <string>
#include <string_view>

namespace temper {

class Unsent {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  bool any() const { return sent_ < bytes_.size(); }
  /// As many as the pipe takes now. Those for a reader that is gone are lost: its output tells whether it has
  /// ended.
  void write(int descriptor);

 private:
  std::string bytes_;
  size_t sent_ = 0;
};

}  // namespace temper

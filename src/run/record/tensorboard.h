#pragma once
// TensorBoard event files: records of {length, masked CRC-32C, protobuf Event, masked CRC-32C}, scalars only.
// Readers tolerate a cut last record; resume drops events after the restored step by copying the rest.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "src/core/file.h"

namespace temper {

uint32_t crc32c(std::string_view bytes);
std::string event_file_header(double wall_time);
std::string scalar_event(double wall_time, int64_t step, const std::map<std::string, double>& values);

class EventFile {
 public:
  /// Makes a new events.out.tfevents.* file in `folder`.
  explicit EventFile(const std::string& folder);
  void write(int64_t step, const std::map<std::string, double>& values);
  void sync() { file_->sync(); }

 private:
  std::unique_ptr<OutputFile> file_;
};

/// Rewrites every event file of `folder` without the events of steps above `step`. What has the name of one
/// and is no file stays, with a warning.
void truncate_event_files(const std::string& folder, int64_t step);

}  // namespace temper

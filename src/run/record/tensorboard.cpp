#include "src/run/record/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <vector>

#include "src/core/check.h"
#include "src/core/log.h"

namespace temper {
namespace {

constexpr int64_t kAround = 16;  // bytes of a record besides its data: length, two checksums
constexpr int64_t kWindow = int64_t{4} << 20;

std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1u) ? 0x82F63B78u : 0u);
    table[i] = c;
  }
  return table;
}

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_bytes_field(std::string& out, int field, std::string_view bytes) {
  append_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  append_varint(out, bytes.size());
  out.append(bytes);
}

uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

std::string record(std::string_view data) {
  std::string out, length;
  append(length, static_cast<uint64_t>(data.size()));
  out = length;
  append(out, masked(crc32c(length)));
  out.append(data);
  append(out, masked(crc32c(data)));
  return out;
}

std::string event_prefix(double wall_time) {
  std::string event(1, '\x09');  // field 1, fixed64
  append(event, wall_time);
  return event;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Field 2 of an event (varint), 0 when absent.
int64_t step_of(std::string_view event) {
  if (event.size() < 10 || event[9] != '\x10') return 0;
  uint64_t value = 0;
  for (size_t i = 10, shift = 0; i < event.size() && shift < 64; ++i, shift += 7) {
    value |= static_cast<uint64_t>(event[i] & 0x7f) << shift;
    if (!(event[i] & 0x80)) break;
  }
  return static_cast<int64_t>(value);
}

struct ByteRange {
  int64_t begin = 0, end = 0;
};

/// The records of steps up to `step`, as few ranges as they make; a cut last record is in none.
std::vector<ByteRange> records_to(const InputFile& file, int64_t step) {
  constexpr int64_t kBeforeData = 12, kStepIsWithin = 24;
  std::vector<ByteRange> kept;
  for (int64_t at = 0; at + kAround <= file.size();) {
    uint64_t length = 0;
    file.read(&length, at, sizeof length);
    if (length > static_cast<uint64_t>(file.size() - at - kAround)) break;
    const auto data = static_cast<int64_t>(length), end = at + data + kAround;
    std::string event(static_cast<size_t>(std::min(data, kStepIsWithin)), '\0');
    file.read(event.data(), at + kBeforeData, std::ssize(event));
    if (step_of(event) <= step) {
      if (!kept.empty() && kept.back().end == at)
        kept.back().end = end;
      else
        kept.push_back({at, end});
    }
    at = end;
  }
  return kept;
}

/// Event files of long runs are large: nothing of one is in memory but a window.
void truncate_event_file(const std::string& path, int64_t step) {
  const InputFile file(path);
  const std::vector<ByteRange> kept = records_to(file, step);
  if (kept.size() == 1 && kept.front().begin == 0 && kept.front().end == file.size()) return;
  const std::string copy = fmt::format("{}.tmp.{}", path, ::getpid());
  OutputFile out(copy, OutputFile::Mode::truncate);
  std::string window;
  for (const ByteRange& range : kept)
    for (int64_t at = range.begin; at < range.end; at += std::ssize(window)) {
      window.resize(static_cast<size_t>(std::min(kWindow, range.end - at)));
      file.read(window.data(), at, std::ssize(window));
      out.write(window);
    }
  out.close();
  rename_path(copy, path);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = make_crc_table();
  uint32_t c = 0xFFFFFFFFu;
  for (unsigned char byte : bytes) c = table[(c ^ byte) & 0xff] ^ (c >> 8);
  return ~c;
}

std::string event_file_header(double wall_time) {
  std::string event = event_prefix(wall_time);
  append_bytes_field(event, 3, "brain.Event:2");
  return record(event);
}

std::string scalar_event(double wall_time, int64_t step, const std::map<std::string, double>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) {
    std::string one;
    append_bytes_field(one, 1, tag);
    one.push_back('\x15');  // field 2, fixed32
    append(one, static_cast<float>(value));
    append_bytes_field(summary, 1, one);
  }
  std::string event = event_prefix(wall_time);
  event.push_back('\x10');
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes_field(event, 5, summary);
  return record(event);
}

EventFile::EventFile(const std::string& folder) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  make_directories(folder);
  const double time = now();
  const std::string name =
      fmt::format("events.out.tfevents.{}.{}.{}", static_cast<int64_t>(time), host, ::getpid());
  file_ = std::make_unique<OutputFile>(join_path(folder, name), OutputFile::Mode::append);
  file_->write(event_file_header(time));
}

void EventFile::write(int64_t step, const std::map<std::string, double>& values) {
  file_->write(scalar_event(now(), step, values));
}

void truncate_event_files(const std::string& folder, int64_t step) {
  if (!is_directory(folder)) return;
  for (const std::string& name : list_directory(folder)) {
    const std::string path = join_path(folder, name);
    if (name.find("tfevents") == std::string::npos || is_temporary(name)) continue;
    if (!std::filesystem::is_regular_file(path))
      log::warn("{} stays as it is: it is no file", path);
    else
      truncate_event_file(path, step);
  }
}

}  // namespace temper

#include "src/run/record/tensorboard.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <vector>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr int64_t kWindow = int64_t{1} << 20;

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

/// Small pieces of a file of any size, read in windows, mostly forwards.
class Pieces {
 public:
  explicit Pieces(const InputFile& file) : file_(file) {}
  std::string_view at(int64_t offset, int64_t bytes) {
    bytes = std::min(bytes, file_.size() - offset);
    if (offset < begin_ || offset + bytes > begin_ + std::ssize(window_)) {
      begin_ = offset;
      window_.resize(static_cast<size_t>(std::min(std::max(kWindow, bytes), file_.size() - offset)));
      file_.read(window_.data(), offset, std::ssize(window_));
    }
    return std::string_view(window_).substr(static_cast<size_t>(offset - begin_), static_cast<size_t>(bytes));
  }

 private:
  const InputFile& file_;
  int64_t begin_ = 0;
  std::string window_;
};

struct Range {
  int64_t begin, end;
};

/// Whole records of events up to `step`; neighbours are one range.
std::vector<Range> kept_records(const InputFile& file, int64_t step) {
  constexpr int64_t kHead = 12, kFrame = 16, kStepEnd = 20;  // of an event: its step ends before that byte
  std::vector<Range> kept;
  Pieces pieces(file);
  for (int64_t at = 0; at + kFrame <= file.size();) {
    uint64_t length = 0;
    std::memcpy(&length, pieces.at(at, kHead).data(), sizeof length);
    if (length > static_cast<uint64_t>(file.size() - at - kFrame)) break;  // a cut last record
    const int64_t end = at + kFrame + static_cast<int64_t>(length);
    if (step_of(pieces.at(at + kHead, std::min(static_cast<int64_t>(length), kStepEnd))) <= step) {
      if (kept.empty() || kept.back().end != at) kept.push_back({at, at});
      kept.back().end = end;
    }
    at = end;
  }
  return kept;
}

void truncate_event_file(const std::string& path, int64_t step) {
  const InputFile file(path);
  const std::vector<Range> kept = kept_records(file, step);
  if (file.size() == 0 || (kept.size() == 1 && kept[0].begin == 0 && kept[0].end == file.size())) return;
  const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  ::unlink(temporary.c_str());  // of a process of this number that was killed
  OutputFile out(temporary, OutputFile::Mode::create_new);
  Pieces pieces(file);
  for (const Range& range : kept)
    for (int64_t at = range.begin; at < range.end; at += kWindow)
      out.write(pieces.at(at, std::min(kWindow, range.end - at)));
  out.close();
  rename_path(temporary, path);
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
    std::error_code error;
    if (name.find("tfevents") == std::string::npos || is_temporary(name)) continue;
    if (std::filesystem::is_regular_file(path, error))
      truncate_event_file(path, step);
    else
      spdlog::warn("{} is left as it is: it is no file", path);
  }
}

}  // namespace temper

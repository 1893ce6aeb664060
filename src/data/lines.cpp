#include "src/data/lines.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr int64_t kMaxLineBytes = int64_t{8} << 20;
constexpr int64_t kWindow = int64_t{4} << 20;
constexpr int64_t kSmallWindow = int64_t{16} << 10;
constexpr int64_t kSampleBytes = int64_t{16} << 20;
constexpr int64_t kFewest = 16;
constexpr std::string_view kBlanks = " \t\r\n";

/// What a file that is no JSONL begins with, and the command that makes one of it ({}: its path).
struct OtherFormat {
  std::string_view magic;
  const char *kind, *fix;
};
constexpr const char* kUnpack = "unpack it first; files are read as they are";
constexpr const char* kEncode = "write it as UTF-8: iconv -f UTF-16 -t UTF-8 {} > data.jsonl";
constexpr OtherFormat kOtherFormats[] = {
    {"PAR1", "a Parquet file",
     "convert it: python3 -c 'import pandas; pandas.read_parquet(\"{}\").to_json(\"data.jsonl\", "
     "orient=\"records\", lines=True)'"},
    {"ARROW1", "an Arrow file",
     "convert it: python3 -c 'import pandas; pandas.read_feather(\"{}\").to_json(\"data.jsonl\", "
     "orient=\"records\", lines=True)'"},
    {"\x1f\x8b", "compressed with gzip", kUnpack},
    {"\x28\xb5\x2f\xfd", "compressed with zstd", kUnpack},
    {"PK\x03\x04", "a zip archive", kUnpack},
    {"\xff\xfe", "text in UTF-16", kEncode},
    {"\xfe\xff", "text in UTF-16", kEncode}};

void refuse_other_formats(const InputFile& file) {
  std::string head(static_cast<size_t>(std::min<int64_t>(file.size(), 8)), '\0');
  file.read(head.data(), 0, static_cast<int64_t>(head.size()));
  for (const OtherFormat& other : kOtherFormats)
    if (head.starts_with(other.magic))
      fail(Exit::data, {.what = "a data file is no JSONL",
                        .where = file.path(),
                        .why = fmt::format("it is {}", other.kind),
                        .fix = fmt::format(fmt::runtime(other.fix), file.path())});
}

[[noreturn]] void fail_long(const InputFile& file, const std::string& place) {
  fail(Exit::data, {.what = "a line is too long",
                    .where = file.path() + place,
                    .why = fmt::format("more than {} bytes", kMaxLineBytes),
                    .fix = "one JSON object per line; shorten this one or take it out"});
}

[[noreturn]] void fail_empty(const InputFile& file) {
  fail(Exit::data, {.what = "a data file has no lines",
                    .where = file.path(),
                    .why = fmt::format("{} bytes, all of them blanks", file.size()),
                    .fix = "give a JSONL file with one object per line"});
}

/// Where the line that holds byte `at` ends.
int64_t end_of_line(const InputFile& file, int64_t at) {
  std::string window;
  for (int64_t from = at; from < file.size(); from += static_cast<int64_t>(window.size())) {
    if (from - at > kMaxLineBytes) fail_long(file, fmt::format(", byte {}", at));
    window.resize(static_cast<size_t>(std::min(kSmallWindow, file.size() - from)));
    file.read(window.data(), from, static_cast<int64_t>(window.size()));
    if (const size_t end = window.find('\n'); end != std::string::npos)
      return from + static_cast<int64_t>(end);
  }
  return file.size();
}

/// The first line, and those that begin behind evenly spaced bytes.
std::vector<Line> spaced_lines(const InputFile& file, int64_t count) {
  std::vector<Line> lines;
  int64_t behind = 0;  // the end of the line before
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = static_cast<int64_t>(static_cast<double>(file.size()) / static_cast<double>(count) *
                                            static_cast<double>(i));
    const int64_t begin = i == 0 ? 0 : end_of_line(file, std::max(at, behind)) + 1;
    if (begin >= file.size()) break;
    const Line line{begin, end_of_line(file, begin), i == 0};
    behind = line.end;
    if (read_line(file, line).find_first_not_of(kBlanks) != std::string::npos) lines.push_back(line);
  }
  if (lines.empty()) fail_empty(file);
  return lines;
}

int64_t wanted_lines(int64_t max_lines, double mean_bytes) {
  const auto fitting = static_cast<int64_t>(static_cast<double>(kSampleBytes) / std::max(1.0, mean_bytes));
  return std::min(max_lines, std::max(kFewest, fitting));
}

double mean_bytes(const std::vector<Line>& lines) {
  double sum = 0;
  for (const Line& line : lines) sum += static_cast<double>(line.end - line.begin + 1);
  return sum / static_cast<double>(lines.size());
}

}  // namespace

std::vector<Line> find_lines(const InputFile& file, Digest* digest) {
  refuse_other_formats(file);
  std::vector<Line> lines;
  std::string window;
  Line line{0, 0, 1};
  bool blank = true;
  const auto close = [&](int64_t end) {
    line.end = end;
    if (line.end - line.begin > kMaxLineBytes) fail_long(file, fmt::format(":{}", line.number));
    if (!blank) lines.push_back(line);
    line = {end + 1, 0, line.number + 1};
    blank = true;
  };
  for (int64_t at = 0; at < file.size(); at += kWindow) {
    window.resize(static_cast<size_t>(std::min(kWindow, file.size() - at)));
    file.read(window.data(), at, static_cast<int64_t>(window.size()));
    if (digest) digest->update(window.data(), static_cast<int64_t>(window.size()));
    const std::string_view all = window;
    for (size_t i = 0; i < all.size();) {
      const size_t end = std::min(all.find('\n', i), all.size());
      blank = blank && all.substr(i, end - i).find_first_not_of(kBlanks) == std::string_view::npos;
      if (end < all.size()) close(at + static_cast<int64_t>(end));
      i = end + 1;
    }
  }
  if (line.begin < file.size()) close(file.size());
  if (lines.empty()) fail_empty(file);
  return lines;
}

std::string read_line(const InputFile& file, const Line& line) {
  std::string text(static_cast<size_t>(line.end - line.begin), '\0');
  file.read(text.data(), line.begin, line.end - line.begin);
  return text;
}

LineSample sample_lines(const InputFile& file, int64_t max_lines, int64_t count_bytes) {
  if (file.size() > count_bytes) {
    refuse_other_formats(file);
    LineSample sample{.counted = false};
    sample.lines = spaced_lines(file, wanted_lines(max_lines, mean_bytes(spaced_lines(file, kFewest))));
    sample.rows = static_cast<int64_t>(static_cast<double>(file.size()) / mean_bytes(sample.lines));
    return sample;
  }
  const std::vector<Line> all = find_lines(file);
  LineSample sample{.rows = static_cast<int64_t>(all.size())};
  const int64_t count = std::min(sample.rows, wanted_lines(max_lines, mean_bytes(all)));
  for (int64_t i = 0; i < count; ++i)
    sample.lines.push_back(all[static_cast<size_t>(i * sample.rows / count)]);
  return sample;
}

}  // namespace temper

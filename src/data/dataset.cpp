#include "src/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "src/core/big_integer.h"
#include "src/core/check.h"
#include "src/core/rng.h"

namespace temper {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 53;
constexpr double kMinEpochLines = 1e-2;  // with fewer, epochs could not be counted up to kMaxPosition

}  // namespace

Json parse_data_line(const std::string& text, const std::string& where) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks), end = text.find_last_not_of(kBlanks);
  const char first = begin == std::string::npos ? ' ' : text[begin];
  const auto refuse = [&](const std::string& why, const std::string& how = "") {
    fail(Exit::data, {.what = "a data line is not a JSON object",
                      .where = where,
                      .why = why,
                      .fix = "one {...} per line" + how});
  };
  if (first == '[') refuse("it begins an array", "; of a file that is one array: jq -c '.[]' FILE");
  if (first == '{' && begin == end)
    refuse("its object goes on in the next line", "; of a file that is laid out over lines: jq -c . FILE");
  Json json = parse_json_keeping_integers(text, where);
  if (!json.is_object()) refuse("it is " + json_kind(json));
  return json;
}

Dataset::Dataset(const std::vector<DatasetFile>& files, uint64_t seed, bool shuffle, const PartsOf& parts_of)
    : seed_(seed), shuffle_(shuffle) {
  for (const DatasetFile& f : files) {
    File file{f.path, f.weight, InputFile(f.path), {}, {}, ""};
    Digest digest;
    file.lines = find_lines(file.input, &digest);
    file.digest = digest.hex();
    files_.push_back(std::move(file));
  }
  double epoch_lines = 0;
  for (const File& f : files_) epoch_lines += f.weight * static_cast<double>(f.lines.size());
  if (!(epoch_lines >= kMinEpochLines))
    fail(Exit::usage, {.what = "the weights of the data files leave no lines",
                       .where = "data.train",
                       .why = fmt::format("weight times lines, over all files, is {}", epoch_lines),
                       .fix = "give larger weights"});
  for (int64_t i = 0; !parts_of && i < num_lines(); ++i) line(i);
  for (File& f : files_)
    if (parts_of) divide(f, parts_of);
}

void Dataset::divide(File& file, const PartsOf& parts_of) const {
  std::vector<Line> parts;
  for (const Line& line : file.lines) {
    const std::string where = fmt::format("{}:{}", file.path, line.number);
    const int64_t count = parts_of(parse_data_line(read_line(file.input, line), where), where);
    for (int64_t part = 0; part < count; ++part) {
      parts.push_back(line);
      file.parts.push_back(static_cast<int32_t>(part));
    }
  }
  file.lines = std::move(parts);
}

std::vector<FileDigest> Dataset::digests() const {
  std::vector<FileDigest> digests;
  for (const File& f : files_) digests.push_back({f.path, f.input.size(), f.digest});
  return digests;
}

int64_t Dataset::num_lines() const {
  int64_t n = 0;
  for (const File& f : files_) n += static_cast<int64_t>(f.lines.size());
  return n;
}

Dataset::Item Dataset::item_of_line(int64_t index) const {
  for (size_t f = 0; f < files_.size(); ++f) {
    const auto lines = static_cast<int64_t>(files_[f].lines.size());
    if (index < lines) return {f, index};
    index -= lines;
  }
  CHECK(false, "line index out of range");
}

Json Dataset::line(int64_t index) const { return read(item_of_line(index)); }

std::string Dataset::where_line(int64_t index) const { return place_of(item_of_line(index)); }

int64_t Dataset::part_of_line(int64_t index) const { return part_of(item_of_line(index)); }

Json Dataset::record(int64_t position) { return read(locate(position)); }

std::string Dataset::where(int64_t position) { return place_of(locate(position)); }

int64_t Dataset::part(int64_t position) { return part_of(locate(position)); }

int64_t Dataset::part_of(const Item& item) const {
  const File& file = files_[item.file];
  return file.parts.empty() ? 0 : file.parts[static_cast<size_t>(item.line)];
}

std::string Dataset::place_of(const Item& item) const {
  const File& file = files_[item.file];
  const std::string line = fmt::format("{}:{}", file.path, file.lines[static_cast<size_t>(item.line)].number);
  return file.parts.empty() ? line : fmt::format("{}, turn {}", line, part_of(item) + 1);
}

Json Dataset::read(const Item& item) const {
  const File& file = files_[item.file];
  const Line& line = file.lines[static_cast<size_t>(item.line)];
  return parse_data_line(read_line(file.input, line), fmt::format("{}:{}", file.path, line.number));
}

int64_t Dataset::file_begin(const File& file, int64_t epoch) const {
  const double lines = file.weight * static_cast<double>(file.lines.size());
  return static_cast<int64_t>(std::floor(lines * static_cast<double>(epoch)));
}

int64_t Dataset::epoch_begin(int64_t epoch) const {
  int64_t n = 0;
  for (const File& f : files_) n += file_begin(f, epoch);
  return n;
}

/// Fisher-Yates; purpose 0 orders an epoch, 1 + f orders file f.
std::vector<int64_t> Dataset::permutation(int64_t count, uint32_t purpose, uint32_t epoch) const {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle_) return order;
  for (int64_t i = count - 1; i > 0; --i) {
    const PhiloxBlock words =
        stream_words(seed_, RngStream::data_order, static_cast<uint32_t>(i), purpose, epoch);
    const uint64_t word = (uint64_t{words[0]} << 32) | words[1];
    const auto j =
        static_cast<int64_t>((static_cast<unsigned __int128>(word) * static_cast<uint64_t>(i + 1)) >> 64);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  return order;
}

void Dataset::build_epoch(int64_t epoch) {
  std::vector<Item> items;
  for (size_t f = 0; f < files_.size(); ++f) {
    const auto lines = static_cast<int64_t>(files_[f].lines.size());
    std::vector<int64_t> order;
    int64_t pass = -1;
    for (int64_t at = file_begin(files_[f], epoch); at < file_begin(files_[f], epoch + 1); ++at) {
      if (at / lines != pass) {
        pass = at / lines;
        order = permutation(lines, 1 + static_cast<uint32_t>(f), static_cast<uint32_t>(pass));
      }
      items.push_back({f, order[static_cast<size_t>(at % lines)]});
    }
  }
  items_.clear();
  for (int64_t i : permutation(static_cast<int64_t>(items.size()), 0, static_cast<uint32_t>(epoch)))
    items_.push_back(items[static_cast<size_t>(i)]);
}

/// The last epoch that begins at or before `position`: epochs begin at ascending positions, so by bisection.
int64_t Dataset::epoch_of(int64_t position) const {
  int64_t low = 0, high = 1;
  while (epoch_begin(high) <= position) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (epoch_begin(middle) <= position ? low : high) = middle;
  }
  return low;
}

Dataset::Item Dataset::locate(int64_t position) {
  CHECK(position >= 0 && position <= kMaxPosition, "position {} of the data", position);
  if (epoch_ < 0 || position < epoch_begin_ ||
      position - epoch_begin_ >= static_cast<int64_t>(items_.size())) {
    epoch_ = epoch_of(position);
    epoch_begin_ = epoch_begin(epoch_);
    build_epoch(epoch_);
  }
  return items_[static_cast<size_t>(position - epoch_begin_)];
}

}  // namespace temper

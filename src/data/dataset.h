#pragma once
// JSONL files and the order in which their lines are seen. Every line is checked when the file is opened
// (UTF-8, one JSON object, size, duplicate keys), so nothing malformed is met hours into a run; contents are
// read when needed.
//
// Order: a pure function of (seed, epoch, position). In an epoch a file of N lines and weight w contributes w
// * N lines (fractions carry over to later epochs), taken one after the other from an endless series of
// permutations of the file; the contributions of all files are shuffled together. Weight 1 everywhere: every
// line once per epoch.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/core/file.h"
#include "src/core/digest/file_digest.h"
#include "src/core/json.h"
#include "src/data/lines.h"

namespace temper {

struct DatasetFile {
  std::string path;
  double weight = 1.0;
};

/// Error(Exit::data) at `where` for what is no JSON object.
Json parse_data_line(const std::string& text, const std::string& where);

class Dataset {
 public:
  /// How many lines one counts as, its parts: 1 and more.
  using PartsOf = std::function<int64_t(const Json& record, const std::string& where)>;
  /// With `parts_of` each part of a line is drawn by itself; lines below are parts then.
  Dataset(const std::vector<DatasetFile>& files, uint64_t seed, bool shuffle, const PartsOf& parts_of = {});

  /// The line at a running position over all epochs, 0-based, at most 2^53.
  Json record(int64_t position);
  /// Which part of its line, from 0.
  int64_t part(int64_t position);
  /// "path:line" of that position, for messages.
  std::string where(int64_t position);
  /// What the files held when their lines were found, in the order in which they were given.
  std::vector<FileDigest> digests() const;
  /// Lines of all files; record_of_line walks them in file order (validation, checks).
  int64_t num_lines() const;
  Json line(int64_t index) const;
  std::string where_line(int64_t index) const;
  int64_t part_of_line(int64_t index) const;

 private:
  struct File {
    std::string path;
    double weight;
    InputFile input;
    std::vector<Line> lines;
    std::vector<int32_t> parts;  // of each line; empty: all have one
    std::string digest;
  };
  struct Item {
    size_t file;
    int64_t line;
  };

  Item locate(int64_t position);
  Item item_of_line(int64_t index) const;
  void build_epoch(int64_t epoch);
  /// Lines that a file, or all of them, have contributed before `epoch`.
  int64_t file_begin(const File& file, int64_t epoch) const;
  int64_t epoch_begin(int64_t epoch) const;
  int64_t epoch_of(int64_t position) const;
  std::vector<int64_t> permutation(int64_t count, uint32_t purpose, uint32_t epoch) const;
  Json read(const Item& item) const;
  int64_t part_of(const Item& item) const;
  std::string place_of(const Item& item) const;
  void divide(File& file, const PartsOf& parts_of) const;

  std::vector<File> files_;
  uint64_t seed_;
  bool shuffle_;
  int64_t epoch_ = -1;       // the one in items_
  int64_t epoch_begin_ = 0;  // its first position
  std::vector<Item> items_;
};

}  // namespace temper

#pragma once
// Results in input order, written as soon as all before them are there: to stdout, or to a file that goes on
// after the results that it has. How many are done is told on stderr.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/stopwatch.h"

namespace temper {

class OrderedLines {
 public:
  struct Options {
    std::string file = {};  // empty: stdout
    size_t items = 0;
    std::function<size_t(size_t item)> lines_of = {};  // how many lines an item has; none: one
    const char* counted = "";  // what items are called on stderr; empty: nothing is told
    /// Says whether a line of the file is result `line` of `item`.
    std::function<bool(const Json& line, size_t item, size_t number)> belongs = {};
    /// What makes the lines: it stands beside the file, and other settings are refused.
    Json settings = Json::object();
  };
  /// Reads the file: lines of another input or made by other settings are Exit::usage, a last item that is
  /// not whole is removed.
  explicit OrderedLines(Options options);

  /// Items that the file had.
  size_t begun() const { return begun_; }
  bool complete() const { return next_ == options_.items; }
  /// `text`: the lines of an item, each with its end.
  void put(size_t item, std::string text);
  void close();

 private:
  void read_file_before();
  void tell();

  Options options_;
  size_t begun_ = 0, next_ = 0;
  std::map<size_t, std::string> early_;  // done, with one before them that is not
  std::unique_ptr<OutputFile> file_;     // null: stdout
  bool terminal_ = false;
  Stopwatch told_;
};

}  // namespace temper

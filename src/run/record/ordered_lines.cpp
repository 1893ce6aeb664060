#include "src/run/record/ordered_lines.h"

#include <unistd.h>

#include <cstdio>

#include "src/core/process/results.h"
#include "src/run/record/origins/output_settings.h"

namespace temper {
namespace {

constexpr double kOnTerminal = 0.5, kElsewhere = 30;  // seconds between lines of progress
constexpr int64_t kMostBytes = int64_t{1} << 40;

}  // namespace

OrderedLines::OrderedLines(Options options)
    : options_(std::move(options)), terminal_(::isatty(STDERR_FILENO) == 1) {
  if (options_.file.empty()) return;
  if (path_exists(options_.file)) read_file_before();
  write_output_settings(options_.file, options_.settings);
  file_ = std::make_unique<OutputFile>(options_.file, OutputFile::Mode::append);
}

void OrderedLines::read_file_before() {
  const std::string all = read_file(options_.file, kMostBytes);
  const auto refuse = [&](size_t line) {
    fail(Exit::usage,
         {.what = "the file holds results of something else",
          .where = fmt::format("--out {}, line {}", options_.file, line),
          .why = "a file that exists is gone on with, and this line is not the result at its place",
          .fix = "name another file, or remove this one"});
  };
  const auto lines_of = [&](size_t item) { return options_.lines_of ? options_.lines_of(item) : size_t{1}; };
  size_t item = 0, line_of_item = 0;     // of the next line
  size_t number = 0, whole = 0, at = 0;  // lines; bytes of whole items, and of lines
  for (size_t end; (end = all.find('\n', at)) != std::string::npos; at = end + 1) {
    const Json line = Json::parse(all.substr(at, end - at), nullptr, /*allow_exceptions=*/false);
    ++number;
    if (item >= options_.items || !line.is_object() || !options_.belongs(line, item, line_of_item))
      refuse(number);
    if (++line_of_item < lines_of(item)) continue;
    ++item;
    line_of_item = 0;
    whole = end + 1;
  }
  if (at < all.size() && all[at] != '{') refuse(number + 1);  // no line that a stop cut
  compare_output_settings(options_.file, options_.settings, /*begun=*/!all.empty());
  begun_ = next_ = item;
  if (whole < all.size()) write_file_atomic(options_.file, std::string_view(all).substr(0, whole));
}

void OrderedLines::put(size_t item, std::string text) {
  early_.emplace(item, std::move(text));
  for (auto at = early_.begin(); at != early_.end() && at->first == next_; at = early_.erase(at), ++next_) {
    if (file_)
      file_->write(at->second);
    else
      write_results(at->second);
  }
  if (told_.seconds() > (terminal_ ? kOnTerminal : kElsewhere)) tell();
}

void OrderedLines::tell() {
  told_ = {};
  // Results that scroll by are progress enough.
  if (*options_.counted == '\0' || (!file_ && !complete() && ::isatty(STDOUT_FILENO) == 1)) return;
  const size_t done = next_ + early_.size();
  std::fprintf(stderr, "%s%zu/%zu %s%s", terminal_ ? "\r\033[K" : "", done, options_.items, options_.counted,
               terminal_ && !complete() ? "" : "\n");
  std::fflush(stderr);
}

void OrderedLines::close() {
  if (file_) file_->close();
  tell();
}

}  // namespace temper

#include "src/run/record/tracker/tracked_steps.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/text/file_lines.h"

namespace temper {
namespace {

constexpr int64_t kBlock = int64_t{1} << 20, kMaxLine = int64_t{256} << 20;
constexpr std::array kOfASample{"set",    "group",  "sample",        "domain",     "prompt",      "response",
                                "answer", "reward", "finish_reason", "raw_reward", "reward_parts"};

/// At most so many bytes, whole characters.
Json cut(const Json& value) {
  if (!value.is_string()) return value;
  const std::string& text = value.get_ref<const std::string&>();
  size_t end = std::min(text.size(), TrackedSteps::kMostText);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return end == text.size() ? value : Json(text.substr(0, end) + "...");
}

std::string sample_line(const std::string& text, int64_t step) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return "";
  Json sample{{"type", "sample"}, {"step", step}};
  for (const char* key : kOfASample)
    if (const auto at = line.find(key); at != line.end()) sample[key] = cut(*at);
  return dump_json_line(sample) + "\n";
}

}  // namespace

void TrackedSteps::rewind() {
  offset_ = 0;
  rest_.clear();
}

/// False: there is no more.
bool TrackedSteps::read_more() {
  const std::string file = join_path(folder_, "metrics.jsonl");
  if (!path_exists(file)) return false;
  const InputFile metrics(file);
  if (metrics.size() < offset_) rewind();  // it was removed, and begun again
  const int64_t bytes = std::min(kBlock, metrics.size() - offset_);
  if (bytes == 0) return false;
  const size_t had = rest_.size();
  rest_.resize(had + static_cast<size_t>(bytes));
  metrics.read(rest_.data() + had, offset_, bytes);
  offset_ += bytes;
  return true;
}

std::optional<std::string> TrackedSteps::next_line() {
  size_t end = rest_.find('\n');
  for (; end == std::string::npos; end = rest_.find('\n'))
    if (!read_more()) return std::nullopt;
  std::string line = rest_.substr(0, end);
  rest_.erase(0, end + 1);
  return line;
}

std::optional<TrackedSteps::Step> TrackedSteps::next(int64_t last) {
  while (const std::optional<std::string> text = next_line()) {
    Json metrics = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const auto at = metrics.is_object() ? metrics.find("step") : metrics.end();
    if (at == metrics.end() || !at->is_number_integer() || at->get<int64_t>() <= last) continue;
    const int64_t step = at->get<int64_t>();
    metrics.erase("step");
    return Step{step,
                sample_lines(step) +
                    dump_json_line({{"type", "metrics"}, {"step", step}, {"metrics", std::move(metrics)}}) +
                    "\n"};
  }
  return std::nullopt;
}

std::string TrackedSteps::sample_lines(int64_t step) const {
  const std::string file = join_path(folder_, "validation/" + step_name(step) + ".jsonl");
  if (!path_exists(file)) return "";
  int64_t count = 0;
  for_each_line(file, kMaxLine, [&](const std::string&, int64_t) { ++count; });
  const auto most = static_cast<int64_t>(kMostSamples), shown = std::min(count, most);
  std::string lines;
  int64_t next = 0;  // of those that are shown
  for_each_line(file, kMaxLine, [&](const std::string& text, int64_t number) {
    if (next >= shown || number - 1 != next * count / shown) return;
    ++next;
    lines += sample_line(text, step);
  });
  return lines;
}

}  // namespace temper

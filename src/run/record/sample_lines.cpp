#include "src/run/record/sample_lines.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "src/core/json.h"
#include "src/core/text/answer_text.h"

namespace temper {
namespace {

constexpr size_t kPrompt = 80, kHead = 120, kTail = 80;  // bytes that are shown

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// At most so many bytes of either end, whole characters.
std::string ends_of(const std::string& text, size_t head, size_t tail) {
  if (text.size() <= head + tail) return text;
  size_t from = text.size() - tail;
  while (head > 0 && continues(text[head])) --head;
  while (from < text.size() && continues(text[from])) ++from;
  return text.substr(0, head) + "..." + text.substr(from);
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string line_of(const Trajectory& t, const PromptFrame& frame, int64_t step) {
  const std::string right(shown_answer(t.answer));
  const std::string answer = right.empty() ? "" : ", answer " + quoted(ends_of(right, kHead, kTail));
  return fmt::format("sample of step {}: {} -> {}{}, {}", step,
                     quoted(ends_of(std::string(frame.question(t.prompt)), 0, kPrompt)),
                     quoted(ends_of(t.response.text, kHead, kTail)), answer,
                     t.excluded ? "no reward" : fmt::format("reward {:.4g}", t.raw_reward));
}

}  // namespace

std::vector<std::string> sample_lines(std::span<const Group> groups, const PromptFrame& frame, int64_t step,
                                      int64_t count) {
  std::vector<std::string> lines;
  const auto all = static_cast<int64_t>(groups.size());
  const int64_t shown = std::min(count, all);
  for (int64_t i = 0; i < shown; ++i) {
    const std::vector<Trajectory>& samples = groups[static_cast<size_t>(i * all / shown)].samples;
    if (!samples.empty())
      lines.push_back(line_of(samples[static_cast<size_t>(step) % samples.size()], frame, step));
  }
  return lines;
}

}  // namespace temper

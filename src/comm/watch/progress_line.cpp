#include "src/comm/watch/progress_line.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <tuple>

#include "src/core/text/short_number.h"

namespace temper {
namespace {

constexpr double kLongestLook = 0.25;  // seconds between two looks at the ranks

struct Words {
  const char* phase;
  const char* pieces;  // of its work
};

Words words_of(Phase phase) {
  switch (phase) {
    case Phase::start:
      return {"starting", ""};
    case Phase::load:
      return {"loading", ""};
    case Phase::rollout:
      return {"generating", "prompts"};
    case Phase::reference:
      return {"reference", "samples"};
    case Phase::train:
      return {"training", "samples"};
    case Phase::validation:
      return {"validation", "prompts"};
    case Phase::sync:
      return {"sending weights", ""};
    case Phase::save:
      return {"saving", ""};
    case Phase::exported:
      return {"exporting", ""};
  }
  return {"unknown", ""};
}

bool has_work(const ProgressState& s) {
  return s.phase != Phase::start && s.work.step == s.step && s.work.phase == s.phase;
}

/// A rank that others wait for: one at counted work, else one that does not wait itself.
const ProgressState& who_holds_up(std::span<const ProgressState> ranks) {
  const auto order = [](const ProgressState& s) {
    return std::tuple(!has_work(s), s.waits != 0, s.step, s.phase);
  };
  const ProgressState* first = &ranks.front();
  for (const ProgressState& s : ranks)
    if (order(s) < order(*first)) first = &s;
  return *first;
}

}  // namespace

std::string ProgressLine::due(std::span<const ProgressState> ranks, double now) {
  next_look_ = now + std::min(interval_ / 2, kLongestLook);
  const int64_t before = step_;
  std::string line = text(ranks, now);
  if (step_ != before) begun_ = now;
  if (now - begun_ < interval_) return "";
  begun_ = now;
  return line;
}

std::string ProgressLine::text(std::span<const ProgressState> ranks, double now) {
  const ProgressState& at = who_holds_up(ranks);
  WorkState all;
  for (const ProgressState& s : ranks) {
    if (s.work.step != at.step || s.work.phase != at.phase) continue;
    all.done += s.work.done;
    all.total += s.work.total;
    all.tokens += s.work.tokens;
  }
  if (at.step != step_ || at.phase != phase_) {
    since_ = now;
    tokens_before_ = all.tokens;
    known_ = {};
  }
  // A rank that is at its next work says no more what it did in this one.
  known_.done = std::max(known_.done, all.done);
  known_.total = std::max(known_.total, all.total);
  known_.tokens = std::max(known_.tokens, all.tokens);
  step_ = at.step;
  phase_ = at.phase;
  const Words words = words_of(at.phase);
  std::string text = at.step > 0 ? fmt::format("step {}: {}", at.step, words.phase) : words.phase;
  if (!has_work(at) || known_.total == 0) return text;
  const double past = now - since_;
  const double rate = past > 0 ? static_cast<double>(known_.tokens - tokens_before_) / past : 0;
  return text +
         fmt::format(", {}/{} {}, {} tok/s", known_.done, known_.total, words.pieces, short_number(rate));
}

}  // namespace temper

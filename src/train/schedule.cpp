#include "src/train/schedule.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "src/core/check.h"

namespace temper {
namespace {

/// Micro-batches go in groups of as many as there are ranks, part by part; the last group is filled up.
std::vector<ScheduleStep> forwards(const PipelineShape& shape, int64_t microbatches) {
  std::vector<ScheduleStep> all;
  const int64_t group = shape.chunks > 1 ? shape.ranks : 1;
  for (int64_t begin = 0; begin < microbatches; begin += group)
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int64_t i = begin; i < begin + group; ++i) all.push_back({false, i, chunk});
  return all;
}

/// Without those that fill up: what is left of an order in which no rank waits for ever is one, too. In
/// groups of different sizes a rank could take a forward first whose input waits for its backward.
std::vector<ScheduleStep> only_first(std::vector<ScheduleStep> steps, int64_t microbatches) {
  std::erase_if(steps, [&](const ScheduleStep& step) { return step.microbatch >= microbatches; });
  return steps;
}

/// A step of some rank, and what it works on: made by another, or by itself.
struct Made {
  int rank = 0;
  ScheduleStep step;
};
std::optional<Made> input_of(const PipelineShape& shape, int rank, const ScheduleStep& step) {
  const int last = shape.ranks - 1, top = shape.chunks - 1;
  if (step.backward) {
    if (rank == last && step.chunk == top) return Made{rank, {false, step.microbatch, step.chunk}};
    return rank < last ? Made{rank + 1, step} : Made{0, {true, step.microbatch, step.chunk + 1}};
  }
  if (rank == 0 && step.chunk == 0) return {};
  return rank > 0 ? Made{rank - 1, step} : Made{last, {false, step.microbatch, step.chunk - 1}};
}

/// The time of every step of every rank.
class Times {
 public:
  using Key = std::tuple<int, bool, int64_t, int>;
  static Key key(int rank, const ScheduleStep& s) { return {rank, s.backward, s.microbatch, s.chunk}; }

  Times(const PipelineShape& shape, const std::vector<std::vector<ScheduleStep>>& lists) {
    std::vector<size_t> next(lists.size(), 0);
    size_t left = 0;
    for (const auto& list : lists) left += list.size();
    for (int64_t time = 0; left > 0; ++time) {
      std::vector<Key> made;
      for (int rank = 0; rank < shape.ranks; ++rank) {
        const auto& list = lists[static_cast<size_t>(rank)];
        size_t& at = next[static_cast<size_t>(rank)];
        if (at == list.size() || !is_ready(shape, rank, list[at])) continue;
        made.push_back(key(rank, list[at++]));
      }
      CHECK(!made.empty(), "the steps of a pipeline wait for each other");
      for (const Key& one : made) times_[one] = time;
      left -= made.size();
      end_ = time + 1;
    }
  }
  int64_t of(int rank, const ScheduleStep& step) const { return times_.at(key(rank, step)); }
  int64_t end() const { return end_; }

 private:
  bool is_ready(const PipelineShape& shape, int rank, const ScheduleStep& step) const {
    const std::optional<Made> input = input_of(shape, rank, step);
    return !input || times_.contains(key(input->rank, input->step));
  }

  std::map<Key, int64_t> times_;
  int64_t end_ = 0;
};

/// Hands out places of which each is in use until a time.
class Borders {
 public:
  int take(int64_t from, int64_t until) {
    for (size_t i = 0; i < until_.size(); ++i)
      if (until_[i] <= from) return until_[i] = until, static_cast<int>(i);
    until_.push_back(until);
    return static_cast<int>(until_.size()) - 1;
  }
  int size() const { return static_cast<int>(until_.size()); }

 private:
  std::vector<int64_t> until_;
};

}  // namespace

std::vector<ScheduleStep> forward_steps(const PipelineShape& shape, int, int64_t microbatches) {
  return only_first(forwards(shape, microbatches), microbatches);
}

std::vector<ScheduleStep> training_steps(const PipelineShape& shape, int rank, int64_t microbatches) {
  const std::vector<ScheduleStep> table = forwards(shape, microbatches);
  const int after = shape.ranks - 1 - rank;
  const size_t wanted = shape.chunks == 1 ? static_cast<size_t>(after)
                                          : static_cast<size_t>(2 * after + (shape.chunks - 1) * shape.ranks);
  const size_t ahead = std::min(wanted, table.size());
  std::vector<ScheduleStep> steps(table.begin(), table.begin() + static_cast<int64_t>(ahead));
  for (size_t i = 0; i < table.size(); ++i) {
    if (i + ahead < table.size()) steps.push_back(table[i + ahead]);
    steps.push_back({true, table[i].microbatch, shape.chunks - 1 - table[i].chunk});
  }
  return only_first(std::move(steps), microbatches);
}

int64_t most_kept(const PipelineShape& shape, int rank, int64_t microbatches) {
  int64_t kept = 0, most = 0;
  for (const ScheduleStep& step : training_steps(shape, rank, microbatches)) {
    kept += step.backward ? -1 : 1;
    most = std::max(most, kept);
  }
  return most;
}

Schedule schedule(const PipelineShape& shape, int rank, int64_t microbatches,
                  std::vector<ScheduleStep> (*steps_of)(const PipelineShape&, int, int64_t)) {
  std::vector<std::vector<ScheduleStep>> lists;
  for (int r = 0; r < shape.ranks; ++r) lists.push_back(steps_of(shape, r, microbatches));
  const Times times(shape, lists);
  const auto& own = lists[static_cast<size_t>(rank)];
  std::map<int64_t, ScheduleSlot> slots;
  struct Use {
    int64_t when = 0, microbatch = 0;
    int taker = 0;
  };
  std::map<int64_t, Use> uses;  // by the time at which this rank makes what another takes
  for (int taker = 0; taker < shape.ranks; ++taker)
    for (const ScheduleStep& step : lists[static_cast<size_t>(taker)])
      if (const std::optional<Made> input = input_of(shape, taker, step);
          input && input->rank == rank && taker != rank)
        uses[times.of(rank, input->step)] = {times.of(taker, step), step.microbatch, taker};
  Schedule result;
  Borders borders;
  for (const ScheduleStep& step : own) {
    const int64_t time = times.of(rank, step);
    ScheduleSlot& slot = slots[time];
    slot.step = step;
    if (const std::optional<Made> input = input_of(shape, rank, step); input && input->rank != rank)
      slot.from = input->rank;
    if (const auto use = uses.find(time); use != uses.end()) {
      const auto& [when, microbatch, taker] = use->second;
      const int border = slot.border = borders.take(time, when);
      slots[when].sends.push_back({microbatch, border, taker});
    }
  }
  for (auto& [time, slot] : slots) result.slots.push_back(std::move(slot));
  result.borders = borders.size();
  result.idle = times.end() - std::ssize(own);
  return result;
}

}  // namespace temper

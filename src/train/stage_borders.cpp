#include "src/train/stage_borders.h"

#include <algorithm>

namespace temper {

StageBorders::StageBorders(Ctx& c, const Model& model, std::span<const Trajectory* const> all,
                           const std::vector<std::vector<int32_t>>& microbatches, int number)
    : model_(model), made_(static_cast<size_t>(number)) {
  const int64_t ranks = model.splits().cp_ranks() * model.splits().tp_ranks();
  int64_t most = 1;
  for (const auto& sequences : microbatches) {
    int64_t rows = 0;
    for (const int32_t i : sequences) rows += packed_length(*all[static_cast<size_t>(i)]);
    most = std::max(most, (rows + ranks - 1) / ranks);
  }
  for (int i = 0; i < number; ++i)
    places_.push_back(c.scratch.make({most, model.config().hidden_size}, model.dtype()));
}

Tensor StageBorders::take(const ScheduleSlot& time, const Microbatch& mb) {
  if (time.border < 0) return {};
  const auto at = static_cast<size_t>(time.border);
  return made_[at] = rows(places_[at], 0, model_.stream_rows(mb.stream()));
}

std::vector<Parcel> StageBorders::sent(const ScheduleSlot& time, size_t own) const {
  std::vector<Parcel> parcels;
  for (const ScheduleSlot::Send& send : time.sends)
    if (static_cast<size_t>(send.microbatch) < own)
      parcels.push_back(parcel(send.to, made_[static_cast<size_t>(send.border)]));
  return parcels;
}

}  // namespace temper

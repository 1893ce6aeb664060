// What the trainer role leaves in a checkpoint, and takes up from one.

#include "src/rl/trajectory_bytes.h"
#include "src/run/roles/steps_ahead.h"
#include "src/run/roles/train_role.h"
#include "src/train/optimizer_state.h"

namespace temper {

void TrainRole::settle(int64_t produced) {
  cut_ = false;
  produced_ = step_;
  while (produced_ < produced && !cut_)
    if (cut_ = p_.groups.peek_made(produced_ + 1).note.cut; !cut_) ++produced_;
}

void TrainRole::save(CheckpointWriter& checkpoint) const {
  for (StateTensor& tensor : state_tensors(trainer_.optimizer(), model_.device(), StateUse::save))
    checkpoint.tensor(std::move(tensor));
  int64_t data_position = data_position_;
  for (int64_t s = step_ + 1; s <= produced_; ++s) {
    const StepInput& ahead = p_.groups.peek_made(s);
    checkpoint.bytes(ahead_name(s), step_input_to_bytes(ahead));
    data_position = ahead.note.data_position;
  }
  if (cut_) {
    const StepInput& open = p_.groups.peek_made(produced_ + 1);
    checkpoint.bytes(open_name(produced_ + 1), step_input_to_bytes(open));
    data_position = open.note.data_position;
  }
  const std::vector<Group>& unfinished = p_.groups.unfinished_after(cut_ ? produced_ + 1 : produced_);
  if (!unfinished.empty()) checkpoint.bytes(kUnfinished, groups_to_bytes(unfinished));
  if (!trained_.empty())
    checkpoint.dump_if_refused([this] { p_.journal.write_groups("nonfinite", trained_, step_); });
  checkpoint.count("optimizer_updates", trainer_.optimizer().count());
  checkpoint.count("data_position", data_position);
}

void TrainRole::restore(const CheckpointReader& checkpoint) {
  std::vector<StateTensor> state = state_tensors(trainer_.optimizer(), model_.device(), StateUse::load);
  // What was frozen until then has no moments there: they begin at zero.
  std::erase_if(state, [&](const StateTensor& tensor) {
    return tensor.name.starts_with("opt/") && !checkpoint.has(tensor.name);
  });
  checkpoint.fill(state);
  trainer_.optimizer().restore(p_.ctx, checkpoint.count("optimizer_updates"));
  step_ = checkpoint.step();
  const bool made_before = checkpoint.has(ahead_name(step_ + 1)) || checkpoint.has(open_name(step_ + 1));
  first_own_step_ = step_ + (made_before ? 2 : 1);
  p_.end.set_trained(step_);
  data_position_ = checkpoint.count("data_position");
}

}  // namespace temper

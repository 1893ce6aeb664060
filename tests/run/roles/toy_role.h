#pragma once
// A role that the program does not have, as a user would add one: this file, and its row in a table. It gives
// every response a reward part, which depends on all steps that it has closed: state that a checkpoint must
// hold. Of a critic it has the life, of a reward model what it says.

#include <cstring>

#include "src/run/roles/role.h"

namespace temper {

class ToyRole : public Role {
 public:
  ToyRole(GroupExchange& groups, size_t stage, Lead lead) : groups_(groups), stage_(stage), lead_(lead) {}

  bool phase(int64_t step) override { return work_until(lead_.limit(step)); }
  void settle(int64_t produced) override { work_until(produced); }
  void save(CheckpointWriter& checkpoint) const override {
    checkpoint.bytes("roles/toy/mood", {reinterpret_cast<const char*>(&mood_), sizeof mood_});
    checkpoint.count("roles/toy/steps", lead_.done);
  }
  void restore(const CheckpointReader& checkpoint) override {
    mood_ = checkpoint.parsed("roles/toy/mood", [](std::string_view bytes) {
      double mood = 0;
      CHECK(bytes.size() == sizeof mood, "{} bytes", bytes.size());
      std::memcpy(&mood, bytes.data(), sizeof mood);
      return mood;
    });
    CHECK(checkpoint.count("roles/toy/steps") == lead_.done, "other steps were annotated than produced");
  }

 private:
  bool work_until(int64_t step) {
    while (lead_.done < step && !groups_.was_cut(stage_))
      if (!annotate(lead_.done + 1)) return false;
    return true;
  }

  bool annotate(int64_t step) {
    double annotated = 0;
    while (const std::optional<Group> group = groups_.take(stage_, step)) {
      std::vector<Annotation> added;
      for (const Trajectory& t : group->samples)
        added.push_back({t.data_position,
                         t.sample,
                         "reward_parts/toy",
                         {mood_ + 0.001 * static_cast<double>(t.response.tokens.size())}});
      groups_.annotate(stage_, step, added);
      annotated += static_cast<double>(added.size());
    }
    if (groups_.ends_before(stage_, step)) return false;
    groups_.close(stage_, step, {.sums = {{"toy/annotated", annotated}}});
    if (groups_.was_cut(stage_)) return true;         // the rest of it comes when the run goes on
    mood_ = (mood_ + static_cast<double>(step)) / 3;  // has no short decimal form: it must come back exactly
    lead_.done = step;
    return true;
  }

  GroupExchange& groups_;
  size_t stage_;
  Lead lead_;
  double mood_ = 0;
};

inline std::vector<int> toy_ranks(const RunTask& task) { return task.plan.trainer().ranks; }
inline std::unique_ptr<Role> make_toy_role(const RoleParts& p) {
  return std::make_unique<ToyRole>(p.groups, p.stage, p.lead);
}

}  // namespace temper

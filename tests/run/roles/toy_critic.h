#pragma once
// A critic that the program does not have, as a user would add one: this file with its two rows. Its small
// model comes from a folder of its own and is shared as its section says. It gives every response a reward
// part, the mean log-prob of its tokens, and learns from whole steps to make them likelier: what it says
// depends on all that it has learned.

#include <numeric>

#include "src/rl/registry.h"
#include "src/rl/trajectory_bytes.h"
#include "src/run/plan/run_options.h"
#include "src/run/roles/role.h"
#include "src/train/optimizer_state.h"
#include "src/train/trainer.h"

namespace temper {

/// The built-in roles and the toy's.
inline std::span<const RoleTraits> role_traits_with_critic() {
  using enum RoleKey;
  static const std::vector<RoleTraits> rows = [] {
    std::vector<RoleTraits> all(built_in_role_traits().begin(), built_in_role_traits().end());
    all.insert(all.begin() + 1, {.name = "valuer",
                                 .work = RoleWork::trains,
                                 .of_policy = false,
                                 .keys = {ranks, path, tp, pp, zero},
                                 .phase = "valuer",
                                 .needed = [](const Config&) { return true; },
                                 .when_needed = ""});
    return all;
  }();
  return rows;
}

class CriticRole : public Role {
 public:
  explicit CriticRole(const RoleParts& parts)
      : p_(parts),
        mesh_(*p_.model_share.mesh),
        model_(p_.model()),
        team_(p_.model_share.team),
        pass_(pass_options(p_.task.config(), p_.task.plan, *p_.role)),
        sft_(make_algorithm({.name = "sft"})),
        objective_(model_, *sft_, 1.0, p_.task.plan.lengths.max_new),
        trainer_(p_.ctx, model_, mesh_.control(AxisSet::all()), mesh_.control(Axis::dp), SumRanks(mesh_),
                 trainer_options(p_.task.config(), p_.task.plan, *p_.role), p_.model_share.pipeline) {}

  bool phase(int64_t step) override {
    const auto bytes = [&] { return groups_to_bytes(take_all(step)); };
    const std::vector<Group> groups =
        groups_from_bytes(team_.from_leader(bytes, "groups, as the leader got them"));
    if (team_.agree([&] { return p_.groups.ends_before(p_.stage, step); }, "whether the run ends"))
      return false;
    const std::vector<const Trajectory*> all = in_order(groups);
    const auto logprobs = local_logprobs(p_.ctx, model_, all, pass_, p_.model_share.pipeline);
    if (!team_.leads()) return true;
    std::vector<Annotation> added;
    for (size_t i = 0; i < all.size(); ++i)
      added.push_back({all[i]->data_position,
                       all[i]->sample,
                       "reward_parts/valuer",
                       {std::accumulate(logprobs[i].begin(), logprobs[i].end(), 0.0) /
                        static_cast<double>(logprobs[i].size())}});
    p_.groups.annotate(p_.stage, step, added);
    p_.groups.close(p_.stage, step, {.sums = {{"valuer/updates", trainer_.optimizer().count()}}});
    return true;
  }

  void learn(int64_t step, const StepInput& input) override {
    for (const Group& group : input.groups)
      for (const Trajectory& t : group.samples)
        CHECK(std::any_of(t.reward_parts.begin(), t.reward_parts.end(),
                          [](const auto& part) { return part.first == "valuer"; }),
              "step {} is not whole", step);
    const std::vector<const Trajectory*> all = in_order(input.groups);
    if (!all.empty()) trainer_.update(p_.ctx, all, objective_);
    trainer_.trim(p_.ctx);
    learned_ = step;
  }

  void save(CheckpointWriter& checkpoint) const override {
    for (StateTensor& tensor : state(StateUse::save)) checkpoint.tensor(std::move(tensor));
    checkpoint.count("roles/valuer/updates", trainer_.optimizer().count());
    checkpoint.count("roles/valuer/learned", learned_);
  }
  void restore(const CheckpointReader& checkpoint) override {
    checkpoint.fill(state(StateUse::load));
    trainer_.optimizer().restore(p_.ctx, checkpoint.count("roles/valuer/updates"));
    learned_ = checkpoint.count("roles/valuer/learned");
    CHECK(learned_ == checkpoint.step(), "step {} is learned, the checkpoint is of {}", learned_,
          checkpoint.step());
  }

 private:
  std::vector<Group> take_all(int64_t step) {
    std::vector<Group> groups;
    while (std::optional<Group> group = p_.groups.take(p_.stage, step)) groups.push_back(std::move(*group));
    return groups;
  }
  std::vector<StateTensor> state(StateUse use) const {
    std::vector<StateTensor> tensors = state_tensors(trainer_.optimizer(), model_.device(), use);
    for (StateTensor& tensor : tensors) tensor.name = "roles/valuer/" + tensor.name;
    return tensors;
  }

  RoleParts p_;
  Mesh& mesh_;
  Model& model_;
  Team team_;
  PassOptions pass_;
  std::unique_ptr<Algorithm> sft_;
  PolicyObjective objective_;
  Trainer trainer_;
  int64_t learned_ = 0;
};

inline std::vector<int> critic_ranks(const RunTask& task) { return task.plan.role("valuer")->ranks; }
inline std::unique_ptr<Role> make_critic(const RoleParts& parts) {
  return std::make_unique<CriticRole>(parts);
}
inline constexpr RoleRow kCriticRow{"valuer",    Duty::annotates, critic_ranks,
                                    make_critic, "valuer",        State::learned};

}  // namespace temper

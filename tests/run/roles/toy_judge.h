#pragma once
// A scorer that the program does not have, as a user would add one: this file with its two rows. Its model
// comes from a folder of its own, is shared as its section says, and gives every response a reward part: the
// mean log-prob of its tokens.

#include <numeric>

#include "src/rl/trajectory_bytes.h"
#include "src/run/plan/run_options.h"
#include "src/run/roles/role.h"

namespace temper {

/// The built-in roles and the toy's.
inline std::span<const RoleTraits> role_traits_with_judge() {
  using enum RoleKey;
  static const std::vector<RoleTraits> rows = [] {
    std::vector<RoleTraits> all(built_in_role_traits().begin(), built_in_role_traits().end());
    all.insert(all.begin() + 1, {.name = "judge",
                                 .work = RoleWork::scores,
                                 .of_policy = false,
                                 .keys = {ranks, path, tp, pp},
                                 .phase = "judge",
                                 .needed = [](const Config&) { return true; },
                                 .when_needed = ""});
    return all;
  }();
  return rows;
}

class JudgeRole : public Role {
 public:
  explicit JudgeRole(const RoleParts& parts)
      : p_(parts),
        pass_(pass_options(p_.task.config(), p_.task.plan, *p_.role)),
        team_(p_.model_share.team) {}

  bool phase(int64_t step) override { return work_until(p_.lead.limit(step)); }
  void settle(int64_t produced) override { work_until(produced); }

 private:
  bool work_until(int64_t step) {
    while (p_.lead.done < step)
      if (!judge(++p_.lead.done)) return false;
    return true;
  }
  std::vector<Group> take_all(int64_t step) {
    std::vector<Group> groups;
    while (std::optional<Group> group = p_.groups.take(p_.stage, step)) groups.push_back(std::move(*group));
    return groups;
  }
  bool judge(int64_t step) {
    const auto bytes = [&] { return groups_to_bytes(take_all(step)); };
    const std::vector<Group> groups = groups_from_bytes(team_.share(bytes, "groups, as the leader got them"));
    if (team_.agree([&] { return p_.groups.ends_before(p_.stage, step); }, "whether the run ends"))
      return false;
    const std::vector<const Trajectory*> all = in_order(groups);
    const auto logprobs = local_logprobs(p_.ctx, p_.model(), all, pass_, p_.model_share.pipeline);
    if (!team_.leads()) return true;
    std::vector<Annotation> added;
    for (size_t i = 0; i < all.size(); ++i)
      added.push_back({all[i]->data_position,
                       all[i]->sample,
                       "reward_parts/judge",
                       {std::accumulate(logprobs[i].begin(), logprobs[i].end(), 0.0) /
                        static_cast<double>(logprobs[i].size())}});
    p_.groups.annotate(p_.stage, step, added);
    p_.groups.close(p_.stage, step, {.maxima = p_.memory.metrics(p_.role->traits->phase)});
    return true;
  }

  RoleParts p_;
  PassOptions pass_;
  Team team_;
};

inline std::vector<int> judge_ranks(const RunTask& task) { return task.plan.role("judge")->ranks; }
inline std::unique_ptr<Role> make_judge(const RoleParts& parts) { return std::make_unique<JudgeRole>(parts); }
inline constexpr RoleRow kJudgeRow{"judge", Duty::annotates, judge_ranks, make_judge, "judge"};

}  // namespace temper

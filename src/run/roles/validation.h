#pragma once
// Scores the current weights on held-out prompts by generating through the rollout engine. Each file of
// validation.data is a set, with rewards and sampling of its own where it says so; its metrics are those of
// rl/validation_metrics.h behind val/<set>/, and by domain those of rl/rollout_metrics.h behind
// val/<set>/domain/. Random numbers: data positions from kFirstPosition on, so that no draw of training is
// repeated.

#include <list>

#include "src/run/groups/group_maker.h"
#include "src/run/roles/held_out_loss.h"
#include "src/run/roles/role.h"

namespace temper {

class Validation {
 public:
  static constexpr int64_t kFirstPosition = int64_t{1} << 43;

  /// What groups are made with; `rewards`: of sets without their own, null where all have some.
  struct Maker {
    Ctx& ctx;
    Engine& engine;
    const Tokenizer& tokenizer;
    const RewardSet* rewards;
    Team team;
  };
  struct Parts {
    const Config& config;
    const RunPlan& plan;
    Comm& comm;  // its ranks share the prompts, team by team
    Portion portion;
    Maker maker;
    const ModelConfig& model;
    const ChatTemplate* chat;
    std::function<bool()> stops;  // asked between engine steps: nobody waits for the rest
    Helpers* helpers = nullptr;   // null: no reward of a set asks a program
  };
  /// Reads all sets. Exit::data for a line that the rewards of its set cannot score.
  explicit Validation(const Parts& parts);

  /// Items are the prompts of all sets, one after the other.
  struct Item {
    const std::string& set;
    size_t index;  // in the set
    const DrawnPrompt& prompt;
    int64_t samples;
  };
  size_t items() const;
  Item item(size_t number) const;
  /// What the files of the sets held, in order.
  const std::vector<FileDigest>& digests() const { return digests_; }
  /// What is on record of an evaluation that is written down while it is made, and who is told of the rest.
  struct Record {
    size_t begun = 0;                // items that are there: they are not made again
    std::vector<Group> before = {};  // those, in order, on one rank; none on the others
    std::function<void(size_t item, const Group&)> made = {};  // told of each item of this rank, in any order
  };

  struct SetGroups {
    std::string set;
    std::vector<Group> groups;
  };
  struct Result {
    std::map<std::string, double> metrics;
    std::vector<SetGroups> sets;
  };
  /// A line of a rollout file, with the set.
  static Json line_of(const Trajectory& t, int64_t step, const std::string& set);

  /// `version`: of the weights. Nothing when a rank was asked to stop.
  std::optional<Result> run(int64_t version, const Record& record);

 private:
  struct Set {
    std::string name;
    int64_t samples = 1;
    GenerateOptions options;
    std::unique_ptr<RewardSet> own_rewards = {};  // null: those of the run
    RolloutConfig rollout = {};                   // of its sessions
    std::unique_ptr<SessionHost> sessions = {};   // on the first rank of a team, where programs play
    std::vector<DrawnPrompt> prompts = {};
    size_t first = 0;  // item
  };
  void add_set(const ValidationSet& config, const ValidationLengths& lengths);
  void open_sessions(Set& set, const ValidationLengths& lengths) const;
  const RewardSet& rewards_of_set(const Set& set) const {
    return set.own_rewards ? *set.own_rewards : *p_.maker.rewards;
  }
  std::optional<std::vector<Group>> generate(const Set& set, int64_t version, const Record& record);

  Parts p_;
  std::list<Set> sets_;  // their sessions refer to them
  std::vector<FileDigest> digests_;
};

/// Every validation.every steps and after the last one, and before the first one with validation.at_start:
/// metrics, and of what is generated validation/step-XXXXXX.jsonl. One that a stop cut is made when the run
/// goes on.
class ValidationRole : public Role {
 public:
  static constexpr Phase kPhase{50, "validation", "validation", "prompts"};
  /// Absent parts: nothing is generated, or no loss is asked for.
  ValidationRole(const std::optional<HeldOutLoss::Parts>& loss, const std::optional<Validation::Parts>& parts,
                 Journal& journal, const MemoryLedger& memory, int64_t every, int64_t last_step)
      : journal_(journal), memory_(memory), every_(every), last_step_(last_step) {
    if (loss) loss_.emplace(*loss);
    if (parts) validation_.emplace(*parts);
  }
  bool phase(int64_t step) override;
  /// Exit::data where a file was read that is not what it was when the run began.
  void require_unchanged_files(const InputDigests& inputs) const;

 private:
  bool is_due(int64_t step) const {
    return step == 0 || (every_ > 0 && (step % every_ == 0 || step == last_step_));
  }
  void write(const Validation::Result& result, int64_t step);

  std::optional<HeldOutLoss> loss_;
  std::optional<Validation> validation_;
  Journal& journal_;
  const MemoryLedger& memory_;
  int64_t every_, last_step_;
};

std::unique_ptr<Role> make_validation_role(const RoleParts& parts);

}  // namespace temper

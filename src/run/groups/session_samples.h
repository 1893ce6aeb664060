#pragma once
// Samples that programs play: a session for each, whose turns are requests of the engine. The first rank of a
// team has the sessions; what they ask goes to the others as one message a step.

#include "src/run/groups/sample_maker.h"
#include "src/run/groups/session_host.h"
#include "src/run/host/team.h"

namespace temper {

class SessionSamples : public SampleMaker {
 public:
  struct Parts {
    Engine& engine;
    const GenerateOptions& options;
    const Tokenizer& tokenizer;
    Team team;
    SessionHost* host = nullptr;  // null on ranks that follow
  };
  explicit SessionSamples(const Parts& parts);
  ~SessionSamples() override;

  bool add(PromptWork& work, int64_t num_samples, bool after_stop) override;
  /// Ranks with experts of each other make the steps of every one of them, and are done together.
  bool done() const override { return !p_.engine.others().somewhere(!done_); }
  std::vector<MadeGroup> step(Ctx& c, bool cut) override;
  const RolloutCounters& counters() const override { return generation_.counters(); }

 private:
  /// A prompt, and what came of its sessions.
  struct Open {
    PromptWork work;
    std::vector<std::vector<Trajectory>> samples;
    size_t left = 0;  // sessions that go on in this step
  };
  /// A session, by number, goes on no longer in this step. Nothing where the step does not wait for it.
  template <class MakeTrajectories>
  void put_away(uint64_t number, std::vector<MadeGroup>& made, const MakeTrajectories& make);
  void take_ended(std::vector<MadeGroup>& made);
  void take_rested(std::vector<SessionHost::Rested> rested, std::vector<MadeGroup>& made);
  std::vector<MadeGroup> cut_all(Ctx& c);

  const Parts p_;
  EngineDesk silent_;  // of ranks that follow
  DeskGeneration generation_;
  std::map<int64_t, Open> open_;                                // by data position
  std::map<uint64_t, std::pair<int64_t, int32_t>> of_session_;  // prompt and sample
  bool done_ = true;
};

/// The trajectories of a session: one for each of its samples, or one without tokens. `on_limit`: of
/// kOnLimit.
std::vector<Trajectory> session_trajectories(const Trajectory& prompt, const SessionHost::Ended& ended,
                                             const std::string& on_limit);

}  // namespace temper

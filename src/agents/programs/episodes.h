#pragma once
// A process for each session (see harness.h).

#include <map>
#include <memory>

#include "src/agents/programs/player.h"
#include "src/agents/programs/program_pipes.h"

namespace temper {

class Episodes final : public Player {
 public:
  /// `helpers` and `config` outlive it; `words` and `env` are the config's for this run.
  Episodes(Helpers& helpers, const HarnessConfig& config, std::vector<std::string> words,
           std::map<std::string, std::string> env)
      : helpers_(helpers), config_(config), words_(std::move(words)), env_(std::move(env)) {}
  ~Episodes() override;

  bool has_room() const override { return static_cast<int64_t>(open_.size()) < config_.in_flight; }
  void begin(uint64_t session, const HarnessStart& start, PlayerNews& news) override;
  void answer(uint64_t, Json) override {}
  void stop(uint64_t session, const std::string& why, bool late, PlayerNews& news) override;
  void add_to(std::vector<pollfd>& waits) const override;
  double patience(double most) const override { return most; }
  void move(PlayerNews& news) override;

 private:
  struct Episode {
    explicit Episode(const HelperProgram& program) : pipes(program) {}
    ProgramPipes pipes;
    std::string last_line = {};
    bool whole = true;
  };
  static void finish(uint64_t session, Episode& episode, PlayerNews& news);

  Helpers& helpers_;
  const HarnessConfig& config_;
  const std::vector<std::string> words_;
  const std::map<std::string, std::string> env_;
  std::map<uint64_t, std::unique_ptr<Episode>> open_;
};

}  // namespace temper

#pragma once
// The workers of a service, each with many sessions (see harness.h). A worker starts when a session needs it.
// One that ends, talks nonsense, or lets as many sessions in a row be late as it has at once without a word
// between them is killed; another takes its place, kFirstPause after the first end and twice as long after
// each further one before which no session was done. After kMostInRow such ends of a worker sessions that
// wait are not begun but end as those did, until a worker is started again.

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "src/agents/programs/player.h"
#include "src/agents/programs/program_pipes.h"

namespace temper {

class Services final : public Player {
 public:
  static constexpr double kFirstPause = 0.1, kLongestPause = 30;
  static constexpr double kSilence = 0.5;  // seconds from the end of a worker's stdout to its own, at most
  static constexpr int64_t kMostInRow = 4;

  /// `helpers` and `config` outlive it; `words` and `env` are the config's for this run.
  Services(Helpers& helpers, const HarnessConfig& config, std::vector<std::string> words,
           std::map<std::string, std::string> env);
  ~Services() override;

  bool has_room() const override { return find_place().has_value(); }
  void begin(uint64_t session, const HarnessStart& start, PlayerNews& news) override;
  void answer(uint64_t session, Json turn) override;
  void stop(uint64_t session, const std::string& why, bool late, PlayerNews& news) override;
  void add_to(std::vector<pollfd>& waits) const override;
  double patience(double most) const override;
  void move(PlayerNews& news) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    uint64_t session;
    int64_t turns = 0;
    bool asks = false;  // its turn waits for an answer
  };
  struct Worker {
    std::unique_ptr<ProgramPipes> pipes = nullptr;  // null: it does not run
    std::map<std::string, Open> open = {};          // by id
    std::set<std::string> closed = {};              // ids of what is over, whose lines are late
    std::deque<std::string> closed_order = {};
    int64_t late_in_row = 0, ends_in_row = 0, starts = 0;
    Clock::time_point not_before = {};
    std::optional<Clock::time_point> silent_since = std::nullopt;
    EndReason last_reason = EndReason::died;
    std::string last_why = {};
  };

  std::optional<size_t> find_place() const;
  bool may_run(const Worker& worker) const { return worker.pipes || Clock::now() >= worker.not_before; }
  static bool has_ended(Worker& worker);
  bool run(Worker& worker, uint64_t session, PlayerNews& news);
  bool take_line(Worker& worker, std::string_view line, bool whole, PlayerNews& news);
  void take_word(Worker& worker, const std::string& id, const Json& line, PlayerNews& news);
  void close(Worker& worker, const std::string& id, const std::string& why);
  void drop(Worker& worker, EndReason reason, const std::string& why, PlayerNews& news);
  void hear(Worker& worker, PlayerNews& news);

  Helpers& helpers_;
  const HarnessConfig& config_;
  const std::vector<std::string> words_;
  const std::map<std::string, std::string> env_;
  std::vector<Worker> workers_;
  std::map<uint64_t, std::pair<Worker*, std::string>> places_;  // by session
};

}  // namespace temper

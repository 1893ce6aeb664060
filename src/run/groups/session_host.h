#pragma once
// The sessions of a rank that leads generation: its server, the programs that play them, and what each ended
// with. It lives as long as the run; a step starts sessions and takes what came of them.

#include "src/agents/programs/harness.h"
#include "src/agents/service/session_service.h"
#include "src/config/config.h"
#include "src/run/groups/prompt_stream.h"

namespace temper {

class SessionHost {
 public:
  struct Parts {
    const RolloutConfig& rollout;
    const Json& chat_arguments;
    const Tokenizer& tokenizer;
    const ChatTemplate& chat;
    Helpers& helpers;
    GenerateOptions sampling = {};  // the run's
    int64_t context_tokens = 0;     // of a prompt and its turn
    int64_t team = 0;               // number among those that generate: its port, where one is set
  };
  /// Starts the server. What the parts refer to outlives it.
  explicit SessionHost(const Parts& parts);
  ~SessionHost();

  EngineDesk& desk() { return desk_; }
  const std::string& on_limit() const { return p_.rollout.sessions.on_limit; }
  /// A step of the run begins, in which each path of turns of a session gets so many tokens (0: any number).
  void begin_step(int64_t tokens);
  /// A session for a sample of a prompt; one that rests here goes on. `record`: of one that rested elsewhere,
  /// `after_stop`: in this very step, which a stop cut. Its number.
  uint64_t start(const DrawnPrompt& prompt, int32_t sample, const std::string& record = {},
                 bool after_stop = false);
  struct Ended {
    uint64_t number = 0;
    SessionResult result;
    const HarnessConfig* harness = nullptr;
  };
  /// Hands on what programs and server have for each other. The sessions that have ended since; throws where
  /// a program failed and the run is to stop.
  std::vector<Ended> take_ended();
  /// A session that goes on in another step, with what it has for a checkpoint.
  struct Rested {
    uint64_t number = 0;
    std::string record;
  };
  /// Those that rest since the last call. `left`: how many the step waits for; where all of them wait for
  /// programs that rest, they rest, too.
  std::vector<Rested> take_rested(size_t left);
  /// Ends all programs, with what their sessions have; the engine has nothing of them.
  std::vector<Rested> suspend_all(const std::string& why);
  /// Ends all sessions without a word.
  void stop_all(const std::string& why);
  /// Until something may have come.
  void wait(std::chrono::milliseconds most) { desk_.wait(most); }
  /// Sums for the metrics of a step that ends.
  std::map<std::string, double> end_step();

 private:
  struct Play {
    uint64_t number = 0;  // what `start` gave out; a retry has it, too
    size_t harness = 0;
    SessionSetup setup;
    std::shared_ptr<const Json> record;
    bool rests = false;
  };
  using Sample = std::pair<int64_t, int32_t>;  // data position and sample
  void begin(Play play, const std::string& record = {}, bool after_stop = false);
  std::optional<uint64_t> go_on(const Sample& sample);
  std::vector<Rested> hear_rests();
  void take_results();
  void hear(Harness& harness);

  const Parts p_;
  EngineDesk desk_;
  std::unique_ptr<SessionService> service_;
  std::vector<std::unique_ptr<Harness>> harnesses_;
  std::map<uint64_t, Play> plays_;      // by number of the session on the server
  std::map<Sample, uint64_t> resting_;  // numbers of those that rest
  std::vector<Ended> wanted_;           // those that have ended
  std::map<uint64_t, Ended> unwanted_;  // while they rest: by number
  uint64_t next_ = 0;
};

}  // namespace temper

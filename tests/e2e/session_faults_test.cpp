// Programs and their clients that fail in every way, each in sessions of its own: the run ends, each session
// ends by its cause and nothing else suffers, and nobody is left. Runs that are stopped or killed in a turn.

#include <sys/prctl.h>

#include <set>

#include "src/io/checkpoint/checkpoint.h"
#include "tests/agents/player.h"
#include "tests/agents/session_runs.h"
#include "tests/support/background.h"

namespace temper {
namespace {

/// A program that does to its session what the first word of its prompt says.
class Prank {
 public:
  int play() {
    std::string line;
    std::getline(std::cin, line);
    start_ = Json::parse(line);
    const std::string prompt = start_["record"]["prompt"];
    const std::string kind = prompt.substr(0, prompt.find(' '));
    if (kind == "hangs") return hang();
    if (kind == "forks") return leave_others();
    if (kind == "dies") return ask_and_go(), ::raise(SIGKILL);
    if (kind == "exits") return ask(), 3;
    if (kind == "babbles") return ask(), std::cout << "{\"reward\": 1" << std::endl, 0;
    if (kind == "nan") return ask(), std::cout << "{\"reward\": 1e999}" << std::endl, 0;
    if (kind == "silent") return ask(), 0;
    if (kind == "idle") return reward(1);
    if (kind == "vanishes") return ask_and_go(), ask(), reward(1);
    if (kind == "floods") return flood();
    if (kind == "storms") return storm();
    if (kind == "lies") return lie();
    if (kind == "steals") return steal();
    if (kind == "greedy") return greedy();
    return ask(), reward(0.5);
  }

 private:
  static int reward(double value) { return std::cout << Json{{"reward", value}}.dump() << std::endl, 0; }
  int port() const {
    const std::string url = start_["anthropic_base_url"];
    return std::stoi(url.substr(url.rfind(':') + 1));
  }
  ClientAnswer post(const std::string& path, const std::string& body) const {
    Client client(port());
    client.write(said(path, body));
    return client.read(60);
  }
  std::string said(const std::string& path, const std::string& body) const {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\n\r\n{}",
        path, start_["api_key"].get<std::string>(), body.size(), body);
  }
  std::string chat(const std::string& text) const {
    return Json{{"model", "policy"}, {"messages", Json::array({{{"role", "user"}, {"content", text}}})}}
        .dump();
  }
  int status(const std::string& text) const { return post("/v1/chat/completions", chat(text)).status; }
  void ask() const {
    if (status(start_["record"]["prompt"]) != 200) std::exit(9);
  }
  /// A client that vanishes with its request: no answer can be on its way before, however slow this process is.
  void ask_and_go() const {
    Client(port()).write_and_close(said("/v1/chat/completions", chat("Are you there?")));
  }

  int hang() const {
    ask();
    ::signal(SIGTERM, SIG_IGN);
    while (true) ::pause();
  }
  /// Its children lose it, and their session of processes is another one.
  int leave_others() const {
    ask();
    if (::fork() == 0) {
      ::setsid();
      ::signal(SIGTERM, SIG_IGN);
      if (::fork() > 0) ::_exit(0);
      while (true) ::pause();
    }
    return reward(1);
  }
  int flood() const {
    const std::string line(1 << 16, 'x');
    for (int i = 0; i < 300; ++i) std::cout << line << (i % 3 == 0 ? "\n" : "");
    for (int i = 0; i < 30; ++i) std::cerr << line;
    std::cout << std::endl;
    ask();
    return reward(1);
  }
  /// 60 requests at once, of which most are never read.
  int storm() const {
    std::vector<Client> clients;
    for (int i = 0; i < 60; ++i) {
      clients.emplace_back(port());
      clients.back().write(said("/v1/chat/completions", chat(fmt::format("Request {}.", i))));
    }
    for (size_t i = 0; i < 5; ++i)
      if (clients[i].read(60).status != 200) return 9;
    return reward(1);
  }
  int lie() const {
    const auto refused = [&](const std::string& path, const std::string& body) {
      return post(path, body).status == 400;
    };
    const std::string tokens = "/inference/v1/generate", chats = "/v1/chat/completions";
    const bool all = refused(tokens, R"({"model": "policy", "token_ids": [1, 999999]})") &&
                     refused(tokens, R"({"model": "policy", "token_ids": [-1]})") &&
                     refused(tokens, R"({"model": "policy", "token_ids": "one"})") &&
                     refused(chats, "{\"messages\": [") && refused(chats, "{\"messages\": 5}") &&
                     refused(chats, "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}") &&
                     refused(chats, std::string(100000, '[')) &&
                     refused(tokens, R"({"model": "policy", "token_ids": [)" + many(300) + "1]}");
    ask();
    return all ? reward(1) : 9;
  }
  static std::string many(int count) {
    std::string ids;
    for (int i = 0; i < count; ++i) ids += "5,";
    return ids;
  }
  /// The key of the model opens no reward.
  int steal() const {
    ask();
    const std::string body = "{\"reward\": 100}";
    const bool none = post("/reward", body).status == 401 &&
                      post("/sessions/" + start_["id"].get<std::string>() + "/reward", body).status == 401 &&
                      post("/sessions/0/v1/chat/completions", chat("Another's.")).status != 200;
    return none ? reward(0.25) : 9;
  }
  int greedy() const {
    int turns = 0;
    while (turns < 100 && status(fmt::format("Again {}.", turns)) == 200) ++turns;
    return reward(turns);
  }

  Json start_;
};

const std::map<std::string, std::string> kEnds = {
    {"hangs", "late"},       {"forks", "done"},   {"dies", "died"},        {"exits", "died"},
    {"babbles", "nonsense"}, {"nan", "nonsense"}, {"silent", "no_reward"}, {"idle", "no_request"},
    {"vanishes", "done"},    {"floods", "done"},  {"storms", "done"},      {"lies", "done"},
    {"steals", "done"},      {"greedy", "limit"}, {"plays", "done"},
};

class SessionFaults : public SessionRuns {
 protected:
  void SetUp() override {
    SessionRuns::SetUp();
    std::string data;
    for (const auto& [kind, end] : kEnds)
      data += Json{{"prompt", kind + " well"}, {"answer", kind}}.dump() + "\n";
    program_.write("data.jsonl", data);
  }
  int64_t newest_step(const std::string& run) const {
    const std::vector<int64_t> steps = list_checkpoints(program_.path("runs/" + run + "/checkpoints"));
    return steps.empty() ? 0 : steps.back();
  }
};

TEST_F(SessionFaults, EachEndsItsOwnSession) {
  const std::string mark = fmt::format("SESSION_FAULTS={}", ::getpid());
  const Stopwatch watch;
  ASSERT_EQ(run(1, train("faults", "--prank",
                         "run.steps=1 rollout.prompts_per_step=15 rollout.samples_per_prompt=2 "
                         "train.samples_per_update=30 data.shuffle=false rollout.max_turns=70 "
                         "rollout.max_turn_tokens=4",
                         fmt::format("limit_seconds = 8, env = {{SESSION_FAULTS = \"{}\"}}", ::getpid()))),
            0)
      << output();
  EXPECT_LT(watch.seconds(), 60);
  std::map<std::string, int> sessions, ends;
  for (const Json& t : responses("faults", 1)) {
    const std::string kind = t["answer"], end = t["end_reason"];
    if (kind == "vanishes") {
      EXPECT_EQ(t["fork"], 0) << "nobody got the answer of a client that had left";
    }
    if (t["fork"] > 0) continue;
    ++sessions[kind];
    ++ends[end];
    EXPECT_EQ(end, kEnds.at(kind)) << kind;
    EXPECT_EQ(t["reward"].is_null(), end != "done" && end != "limit") << kind << t["reward"];
    if (kind == "steals") {
      EXPECT_EQ(t["reward"], 0.25);
    }
  }
  EXPECT_EQ(sessions.size(), kEnds.size());
  for (const auto& [kind, count] : sessions) EXPECT_EQ(count, 2) << kind;
  const Json line = program_.metrics("faults").at(0);
  for (const auto& [end, count] : ends) EXPECT_EQ(line.at("rollout/sessions_" + end), count) << end;
  EXPECT_EQ(processes_with(mark), std::vector<pid_t>{});
}

/// By a signal, or because the keeper of the programs is killed, which ends them all.
TEST_F(SessionFaults, RunsThatEndInATurnGoOn) {
  program_.write("data.jsonl", sums(11));
  const std::string more = "checkpoint.every=1", turns = "--play episode --turns 4";
  ASSERT_EQ(run(1, train("whole", turns, more)), 0) << output();
  struct Case {
    std::string name;
    int signal;
    bool to_keeper;
    int code;
  };
  for (const Case& c : {Case{"stopped", SIGTERM, false, 75}, Case{"killed", SIGKILL, false, 128 + SIGKILL},
                        Case{"lost", SIGKILL, true, 75}}) {
    const std::string value = fmt::format("{}-{}", ::getpid(), c.name), mark = "SESSION_FAULTS=" + value;
    {
      const std::string slow = train(c.name, turns + " --jitter 60", more,
                                     fmt::format("env = {{SESSION_FAULTS = \"{}\"}}", value));
      Background job(program_, program_.temper() + " " + slow);
      ASSERT_TRUE(job.until([&] { return newest_step(c.name) >= 1 && !processes_with(mark).empty(); }))
          << output();
      const std::vector<pid_t> keepers = keepers_among(job.processes());
      ASSERT_FALSE(keepers.empty());
      ::kill(c.to_keeper ? keepers.front() : job.pid(), c.signal);
      EXPECT_EQ(job.wait(), c.code) << c.name << output();
    }
    for (const Stopwatch watch; watch.seconds() < 5 && !processes_with(mark).empty();) ::usleep(10000);
    EXPECT_EQ(processes_with(mark), std::vector<pid_t>{}) << c.name;
    ASSERT_EQ(run(1, train(c.name, turns, more)), 0) << output();
    expect_same_rollouts("whole", c.name);
    EXPECT_TRUE(exported_weights("whole", 2) == exported_weights(c.name, 2)) << c.name;
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--prank") return temper::Prank().play();
  if (const auto code = temper::play_if_asked(argc, argv)) return *code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

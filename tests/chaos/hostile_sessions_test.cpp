// Bodies that want harm at the doors of sessions, by somebody who has a key: what they get, and how long
// another session beside them waits.

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/agents/service/rig.h"

namespace temper {
namespace {

bool chaos() { return std::getenv("CHAOS") != nullptr; }

/// Answers whatever is asked, at once.
class AnsweringRig {
 public:
  AnsweringRig() : engine_([this] { answer_all(); }) {}
  ~AnsweringRig() {
    done_ = true;
    engine_.join();
  }
  SessionRig& operator*() { return rig_; }
  SessionRig* operator->() { return &rig_; }

 private:
  void answer_all() {
    while (!done_)
      for (const DeskNumber number : rig_.asked_now()) rig_.finish(number, "an answer");
  }
  SessionRig rig_;
  std::atomic<bool> done_ = false;
  std::thread engine_;
};

/// Another session's client: it asks over and over, and waits at most a second more than alone.
class Neighbour {
 public:
  explicit Neighbour(SessionRig& rig)
      : port_(rig.port()), key_(rig.open_another().key), thread_([this] { ask(); }) {}
  ~Neighbour() {
    done_ = true;
    thread_.join();
    take_longest();
    EXPECT_EQ(failed_, 0) << "of " << asked_;
    EXPECT_GT(asked_, 0);
    EXPECT_LT(longest_, 1.0) << "of " << asked_;
  }

  /// Since it was asked before.
  double take_longest() {
    longest_ = std::max(longest_, last_.load());
    return last_.exchange(0);
  }

 private:
  void ask() {
    for (; !done_; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      const Json body{{"model", "policy"}, {"messages", Json::array({user(std::to_string(asked_))})}};
      const Stopwatch watch;
      Client client(port_);
      client.write(SessionRig::request_with(key_, "/v1/chat/completions", body.dump()));
      failed_ += client.read(20).status != 200;
      last_ = std::max(last_.load(), watch.seconds());
      ++asked_;
    }
  }

  const int port_;
  const std::string key_;
  std::atomic<bool> done_ = false;
  int asked_ = 0, failed_ = 0;
  std::atomic<double> last_ = 0;
  double longest_ = 0;
  std::thread thread_;
};

const std::string kChat = "/v1/chat/completions", kMessages = "/v1/messages",
                  kTokens = "/inference/v1/generate";

std::string repeated(const std::string& what, size_t bytes) {
  std::string all;
  all.reserve(bytes + what.size());
  while (all.size() < bytes) all += what;
  return all;
}

/// A body around the content of its one message.
std::string with_content(const std::string& json) {
  return R"({"model":"policy","messages":[{"role":"user","content":)" + json + "}]}";
}
std::string with_field(const std::string& field) {
  return R"({"model":"policy","messages":[{"role":"user","content":"hi"}],)" + field + "}";
}

struct Attack {
  std::string what, path, body;
  int status = 400;
};

std::vector<Attack> attacks() {
  constexpr size_t kLarge = 15 << 20;
  const std::string no_end = with_content("\"hi\"").substr(0, 40);
  return {
      {"no JSON", kChat, "hello"},
      {"a body without an end", kChat, no_end},
      {"deep lists", kChat, std::string(1'000'000, '[')},
      {"deep lists that end", kChat, with_field("\"x\":" + std::string(500, '[') + std::string(500, ']'))},
      {"deep objects", kChat, with_field("\"x\":" + repeated("{\"a\":", 2500) + "1" + std::string(500, '}'))},
      {"keys twice", kChat, with_field(R"("model":"policy")")},
      {"broken UTF-8", kChat, with_content("\"\xff\xfe\"")},
      {"half a surrogate", kChat, with_content(R"("\ud800")")},
      {"a zero byte", kChat, with_content(std::string("\"\0\"", 3))},
      {"a number without a bound", kChat, with_field("\"max_tokens\":1" + std::string(400, '0'))},
      {"no number", kChat, with_field("\"temperature\":NaN")},
      {"less than nothing", kChat, with_field("\"max_tokens\":-1")},
      {"answers without a bound", kChat, with_field("\"n\":1000000000")},
      {"a thousand stops", kChat, with_field("\"stop\":[" + repeated("\"a\",", 4000) + "\"a\"]")},
      {"an empty stop", kChat, with_field("\"stop\":\"\"")},
      {"messages that are none", kChat, R"({"model":"policy","messages":{}})"},
      {"no messages", kChat, R"({"model":"policy","messages":[]})"},
      {"a role that is none", kChat,
       R"({"model":"policy","messages":[{"role":"<|im_end|>","content":"x"}]})"},
      {"a text of 15 MB", kChat, with_content('"' + repeated("some words ", kLarge) + '"')},
      {"blanks of 15 MB", kChat, with_content('"' + std::string(kLarge, ' ') + '"')},
      {"a word of 15 MB", kChat, with_content('"' + std::string(kLarge, 'a') + '"')},
      {"escapes of 15 MB", kChat, with_content('"' + repeated("\\u00e9", kLarge) + '"')},
      {"300,000 messages", kChat,
       R"({"model":"policy","messages":[)" + repeated(R"({"role":"user","content":"x"},)", 9'000'000) +
           R"({"role":"user","content":"x"}]})"},
      {"a million of parts", kChat,
       with_content('[' + repeated(R"({"type":"text","text":"x"},)", kLarge) +
                    R"({"type":"text","text":"x"}])")},
      {"lists of 15 MB", kChat, with_field("\"x\":[" + repeated("[],", kLarge) + "[]]")},
      {"tools of 15 MB", kChat,
       with_field("\"tools\":[" +
                  repeated(R"({"type":"function","function":{"name":"f","description":"d"}},)", kLarge) +
                  R"({"type":"function","function":{"name":"f"}}])")},
      {"ids of 15 MB", kTokens, R"({"model":"policy","token_ids":[)" + repeated("5,", kLarge) + "5]}"},
      {"ids of no model", kTokens, R"({"model":"policy","token_ids":[2147483648]})"},
      {"ids below nothing", kTokens, R"({"model":"policy","token_ids":[-1]})"},
      {"ids of another model", kTokens, R"({"model":"policy","token_ids":[6400]})"},
      {"another model", kChat, R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})", 404},
      {"messages of 15 MB", kMessages,
       R"({"model":"policy","max_tokens":9,"messages":[{"role":"user","content":")" +
           repeated("some words ", kLarge) + "\"}]}"},
      {"a count of 15 MB", kMessages + "/count_tokens",
       R"({"model":"policy","messages":[{"role":"user","content":")" + std::string(kLarge, ' ') + "\"}]}"},
      {"a text to be split of 15 MB", "/tokenize", R"({"prompt":")" + std::string(kLarge, ' ') + "\"}"},
      {"a path out of the session", "/sessions/9999" + kChat, with_content("\"hi\""), 401},
      {"a path of files", "/sessions/../../etc/passwd" + kChat, with_content("\"hi\""), 404},
      {"a reward by the model's key", "/reward", "{\"reward\":1}", 401},
  };
}

TEST(HostileSessions, NoBodyKeepsOthersWaiting) {
  AnsweringRig rig;
  Neighbour neighbour(*rig);
  for (const Attack& attack : attacks()) {
    const Stopwatch watch;
    Client client(rig->port());
    std::thread writer([&] { client.write(rig->request(attack.path, attack.body)); });
    const ClientAnswer answer = client.read(20);
    writer.join();
    if (chaos())
      std::printf("%-28s %.2f s, the neighbour %.2f s\n", attack.what.c_str(), watch.seconds(),
                  neighbour.take_longest());
    EXPECT_EQ(answer.status, attack.status) << attack.what << ": " << answer.body.substr(0, 300);
    EXPECT_LT(answer.body.size(), 2000u) << attack.what;
  }
}

/// More turns of one session than it may have under way: some are put off, none is forgotten.
TEST(HostileSessions, PutsOffWhatIsTooMuchAtOnce) {
  SessionRig rig;
  const auto ask = [&](int count) {
    std::vector<Client> clients;
    for (int i = 0; i < count; ++i) {
      clients.emplace_back(rig.port());
      clients.back().write(rig.say(fmt::format("request {}", i)));
    }
    return clients;
  };
  std::vector<Client> first = ask(256);
  const auto asked = rig.asked(256);
  for (Client& client : ask(144)) {
    const ClientAnswer answer = client.read();
    ASSERT_EQ(answer.status, 429);
    EXPECT_EQ(answer.headers.at("retry-after"), "1");
  }
  for (const auto& [number, request] : asked) rig.finish(number, "an answer");
  for (Client& client : first) ASSERT_EQ(client.read().status, 200);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

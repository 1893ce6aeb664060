#pragma once
// A program that plays a session with two agents at once, for tests: the test program starts itself with
// "--talk". What the agents say follows from the session's seed and from what they hear alone; their pace,
// whether they take answers as streams, and what befalls their connections does not.
//
//   --talk [--jitter MS] [--lose] [--stream]
//
// Agents leave answers out of their histories, begin them anew, and call tools. --lose: one of three requests
// is lost with its connection and asked again, with the mark of a retry or without.

#include <iostream>
#include <random>
#include <thread>

#include "src/core/json.h"
#include "tests/agents/server/client.h"

namespace temper {

class Talker {
 public:
  explicit Talker(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      lose_ |= arguments[i] == "--lose";
      stream_ |= arguments[i] == "--stream";
      if (arguments[i] == "--jitter") jitter_ms_ = std::stoi(arguments[++i]);
    }
  }

  int talk() {
    std::string line;
    std::getline(std::cin, line);
    start_ = Json::parse(line);
    std::array<uint64_t, 2> heard{};
    std::vector<std::thread> agents;
    for (uint64_t agent = 0; agent < 2; ++agent)
      agents.emplace_back([this, agent, &heard] { heard[agent] = Agent(*this, agent).talk(); });
    for (std::thread& agent : agents) agent.join();
    const double reward = static_cast<double>((heard[0] + heard[1]) % 7) / 7;
    std::cout << Json{{"reward", reward}}.dump() << std::endl;
    return 0;
  }

 private:
  using Random = std::mt19937_64;

  /// A number that the pace depends on: each time another.
  static unsigned chance() {
    thread_local std::random_device device;
    return device();
  }
  static void pause(int most_ms) {
    if (most_ms > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(chance() % static_cast<unsigned>(most_ms)));
  }

  std::string request(const Json& body, bool again) const {
    const std::string text = body.dump();
    return fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n{}"
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
        start_["api_key"].get<std::string>(), again ? "x-stainless-retry-count: 1\r\n" : "", text.size(),
        text);
  }

  /// The assistant's message.
  Json ask(Json body) const {
    pause(jitter_ms_);
    body["model"] = "policy";
    body["stream"] = stream_ && chance() % 2 == 0;
    const std::string url = start_["anthropic_base_url"];
    const int port = std::stoi(url.substr(url.rfind(':') + 1));
    const bool lost = lose_ && chance() % 3 == 0;
    const bool marked = chance() % 2 == 0;
    if (lost && marked) {
      Client client(port);
      client.write(request(body, false));
      pause(20);
    } else if (lost) {
      Client(port).write_and_close(request(body, false));  // it is seen that nobody can have had the answer
    }
    Client client(port);
    client.write(request(body, lost && marked));
    const ClientAnswer answer = client.read(60);
    if (answer.status != 200) throw std::runtime_error(fmt::format("{}: {}", answer.status, answer.body));
    if (!body["stream"].get<bool>()) return Json::parse(answer.body)["choices"][0]["message"];
    return joined(answer.body);
  }

  static Json joined(const std::string& events) {
    Json message{{"role", "assistant"}, {"content", ""}};
    for (size_t at = 0; (at = events.find("data: {", at)) != events.npos; ++at) {
      const Json chunk = Json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
      const Json delta = chunk["choices"][0]["delta"];
      for (const char* text : {"content", "reasoning_content"})
        if (delta.contains(text)) message[text] = message.value(text, "") + delta[text].get<std::string>();
      for (const Json& call : delta.value("tool_calls", Json::array())) message["tool_calls"].push_back(call);
    }
    return message;
  }

  class Agent {
   public:
    Agent(const Talker& talker, uint64_t number)
        : talker_(talker), random_(talker.start_["seed"].get<uint64_t>() * 2 + number) {
      if (number > 0) messages_.push_back(said("system", "You are the other one."));
      messages_.push_back(said("user", talker.start_["record"]["prompt"]));
    }

    /// A digest of what it heard.
    uint64_t talk() {
      uint64_t heard = 1;
      for (int turns = 2 + below(3); turns > 0; --turns) {
        Json answer = talker_.ask({{"messages", messages_}});
        for (const unsigned char c : answer.dump()) heard = heard * 31 + c;
        const int then = below(10);
        if (then == 0) {  // begins anew
          messages_ = Json::array({said("user", fmt::format("So far {}.", heard % 1000))});
          continue;
        }
        if (then > 1) messages_.push_back(std::move(answer));  // else it is left out
        messages_.push_back(said("user", fmt::format("Go on, {}.", heard % 1000)));
      }
      return heard;
    }

   private:
    static Json said(const std::string& role, const std::string& text) {
      return {{"role", role}, {"content", text}};
    }
    int below(uint64_t n) { return static_cast<int>(random_() % n); }

    const Talker& talker_;
    Random random_;
    Json messages_ = Json::array();
  };

  bool lose_ = false, stream_ = false;
  int jitter_ms_ = 0;
  Json start_;
};

/// In main(): the exit code where the program was started to talk.
inline std::optional<int> talk_if_asked(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "--talk") return std::nullopt;
  return Talker({argv + 2, argv + argc}).talk();
}

}  // namespace temper

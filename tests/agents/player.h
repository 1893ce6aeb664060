#pragma once
// A program that plays sessions, for tests: the test program starts itself with "--play". It asks the policy
// over HTTP or over its pipes, as its arguments say, and what it does depends on what it is told and hears
// alone, but for its pace.
//
//   --play episode|service [--turns N] [--forget] [--jitter MS] [--faults] [--silent] [--two] [--post]
//
// A turn asks for what was said so far and a new message; --forget begins its history anew once, as agents do
// that run out of context; --two has a second agent beside; --faults: of five sessions one dies, one says no
// reward and one says nonsense; --silent: none says a reward; --post: a service posts its rewards.

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "src/core/json.h"
#include "tests/agents/server/client.h"

namespace temper {

class Player {
 public:
  explicit Player(const std::vector<std::string>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& a = arguments[i];
      if (a == "service") service_ = true;
      if (a == "--turns") turns_ = std::stoi(arguments[++i]);
      if (a == "--forget") forget_ = true;
      if (a == "--two") two_ = true;
      if (a == "--faults") faults_ = true;
      if (a == "--silent") silent_ = true;
      if (a == "--post") post_ = true;
      if (a == "--jitter") jitter_ms_ = std::stoi(arguments[++i]);
    }
  }

  int play() { return service_ ? serve() : episode(); }

 private:
  static Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

  void pause() {
    if (jitter_ms_ > 0)
      std::this_thread::sleep_for(
          std::chrono::milliseconds(std::random_device()() % static_cast<unsigned>(jitter_ms_)));
  }

  static ClientAnswer post(const Json& start, const std::string& path, const std::string& key,
                           const Json& body) {
    const std::string url = start["anthropic_base_url"], text = body.dump();
    Client client(std::stoi(url.substr(url.rfind(':') + 1)));
    client.write(
        fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n"
                    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                    path, key, text.size(), text));
    return client.read(60);
  }

  /// The assistant's message.
  Json ask(const Json& messages) {
    pause();
    const ClientAnswer answer = post(start_, "/v1/chat/completions", start_["api_key"],
                                     {{"model", "policy"}, {"messages", messages}, {"temperature", 0.1}});
    if (answer.status != 200) throw std::runtime_error(fmt::format("{}: {}", answer.status, answer.body));
    return Json::parse(answer.body)["choices"][0]["message"];
  }

  /// The reward over HTTP: the key of the model does not open that path. False where the server sees it
  /// otherwise.
  static bool post_reward(const Json& start, double reward) {
    const Json body{{"reward", reward}, {"parts", {{"posted", 1}}}};
    return post(start, "/reward", start["api_key"], body).status == 401 &&
           post(start, "/reward", start["reward_key"], {{"reward", "high"}}).status == 400 &&
           post(start, "/v1/chat/completions", start["reward_key"], body).status == 401 &&
           post(start, "/reward", start["reward_key"], body).status == 200;
  }

  int episode() {
    std::string line;
    std::getline(std::cin, line);
    start_ = Json::parse(line);
    const uint64_t kind = faults_ ? start_["seed"].get<uint64_t>() % 5 : 9;
    Json messages = Json::array({user(start_["record"]["prompt"])});
    std::string said;
    try {
      for (int turn = 0; turn < turns_; ++turn) {
        const Json answer = ask(messages);
        said += answer["content"].get<std::string>();
        if (two_ && turn == 0) ask(Json::array({user("You are another agent. Say what you see.")}));
        if (forget_ && turn == 1) messages = Json::array({user("So far: " + std::to_string(said.size()))});
        messages.push_back(answer);
        messages.push_back(user(fmt::format("Go on, {}.", said.size())));
        if (forget_ && turn == 1) messages.erase(1);
        if (kind == 0) return 3;
      }
    } catch (const std::runtime_error& error) {
      std::cerr << error.what() << std::endl;  // a limit ends the game, not the program
    }
    if (kind == 1 || silent_) return 0;
    if (kind == 2) return std::cout << "{\"reward\": \"high\"}" << std::endl, 0;
    std::cout << Json{{"reward", reward(said)}, {"parts", {{"length", said.size()}}}}.dump() << std::endl;
    return 0;
  }

  static double reward(const std::string& said) { return static_cast<double>(said.size() % 7) / 7; }

  /// Turns over the pipes: as many sessions as are given to it.
  int serve() {
    struct Game {
      Json start;
      int turn = 0;
      std::string said;
    };
    std::map<std::string, Game> games;
    for (std::string line; std::getline(std::cin, line);) {
      const Json heard = Json::parse(line);
      const std::string id = heard["id"];
      if (heard.contains("stop")) {
        games.erase(id);
        continue;
      }
      pause();
      Json told{{"id", id}};
      if (heard.contains("start")) {
        games[id] = {heard["start"], 0, ""};
        told["messages"] = Json::array({user(heard["start"]["record"]["prompt"])});
      } else {
        Game& game = games[id];
        game.said += heard["text"].get<std::string>();
        if (++game.turn < turns_) {
          told["observation"] = fmt::format("Go on, {}.", game.said.size());
        } else {
          told["reward"] = reward(game.said);
          if (post_) told["reward"] = post_reward(game.start, 0.25) ? Json() : Json(-1);
          told["parts"] = {{"length", game.said.size()}};
          told["done"] = true;
          games.erase(id);
        }
      }
      std::cout << told.dump() << std::endl;
    }
    return 0;
  }

  bool service_ = false, forget_ = false, two_ = false, faults_ = false, silent_ = false, post_ = false;
  int turns_ = 1, jitter_ms_ = 0;
  Json start_;
};

/// In main(): the exit code where the program was started to play.
inline std::optional<int> play_if_asked(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "--play") return std::nullopt;
  return Player({argv + 2, argv + argc}).play();
}

}  // namespace temper

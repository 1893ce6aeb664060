#pragma once
// A program that asks what its data line says, for tests: the test program starts itself with "--script
// WORD". A line's key "ask" has a list, one entry for each request:
//
//   fields: of the body, beside model and the messages so far      body: the whole body, as it is
//   key: instead of the session's own     http: all that is sent, as it is     path: instead of chat's
//   status: what is wanted, 200 without     says: a text that the answer has to hold
//
// An answer joins the history, behind it "Go on, WORD."; {MARK} in what is sent becomes kSecretMark. The
// first answer that is not as wanted ends the program with code 9; else its reward is 1. Parts: WORD as 1,
// and those of the list "env" in the line, with the values that the variables have. Where the line has
// "key_file", the session's key stands in that file afterwards.

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "src/core/json.h"
#include "tests/agents/server/client.h"

namespace temper {

inline const std::string kSecretMark = "SECRETMARK0f3a";

class Scripted {
 public:
  explicit Scripted(std::string word) : word_(std::move(word)) {}

  int play() {
    std::string line;
    std::getline(std::cin, line);
    start_ = Json::parse(line);
    const Json& record = start_["record"];
    messages_.push_back(user(record["prompt"]));
    for (const Json& one : record.value("ask", Json::array()))
      if (!asks(one)) return 9;
    if (record.contains("key_file"))
      std::ofstream(record["key_file"].get<std::string>(), std::ios::app) << key() << "\n";
    parts_[word_] = 1;
    for (const Json& name : record.value("env", Json::array())) {
      const char* const value = std::getenv(name.get<std::string>().c_str());
      parts_[name.get<std::string>()] = value == nullptr ? -1 : std::stod(value);
    }
    std::cout << Json{{"reward", 1}, {"parts", parts_}}.dump() << std::endl;
    return 0;
  }

 private:
  static Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
  std::string key() const { return start_["api_key"]; }

  static std::string with_mark(std::string text) {
    const std::string hole = "{MARK}";
    for (size_t at = 0; (at = text.find(hole, at)) != std::string::npos;)
      text.replace(at, hole.size(), kSecretMark);
    return text;
  }

  bool asks(const Json& one) {
    const std::string url = start_["anthropic_base_url"];
    Client client(std::stoi(url.substr(url.rfind(':') + 1)));
    client.write(with_mark(sent(one)));
    const bool stream = one.value("fields", Json::object()).value("stream", false);
    const ClientAnswer answer = client.read(60);
    const int wanted = one.value("status", 200);
    const bool right =
        answer.status == wanted && answer.body.find(one.value("says", "")) != std::string::npos;
    if (!right) std::cerr << one << ": " << answer.status << ", " << answer.body << std::endl;
    if (!right || wanted != 200) return right;
    if (stream)
      hear_stream(answer.body);
    else
      hear(Json::parse(answer.body));
    messages_.push_back(user(fmt::format("Go on, {}.", word_)));
    return true;
  }

  std::string sent(const Json& one) const {
    if (one.contains("http")) return one["http"];
    Json fields{{"model", "policy"}, {"messages", messages_}};
    fields.update(one.value("fields", Json::object()));
    const std::string body = with_mark(one.value("body", fields.dump()));
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\n\r\n{}",
        one.value("path", "/v1/chat/completions"), one.value("key", key()), body.size(), body);
  }

  void hear(const Json& answer) {
    const Json& choice = answer["choices"][0];
    messages_.push_back(choice["message"]);
    if (choice.contains("weight_versions")) parts_["versions"] = choice["weight_versions"].size();
  }

  /// Its pieces are told, and whether its end came.
  void hear_stream(const std::string& events) {
    std::string said;
    int64_t tokens = 0;
    for (size_t at = 0; (at = events.find("data: {", at)) != events.npos; ++at) {
      const Json chunk = Json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
      for (const Json& choice : chunk["choices"]) {
        said += choice["delta"].value("content", "");
        tokens += std::ssize(choice.value("token_ids", Json::array()));
      }
    }
    messages_.push_back({{"role", "assistant"}, {"content", said}});
    parts_["stream_tokens"] = tokens;
    parts_["stream_ended"] = events.ends_with("data: [DONE]\n\n") ? 1 : 0;
  }

  const std::string word_;
  Json start_, messages_ = Json::array(), parts_ = Json::object();
};

/// In main(): the exit code where the program was started to ask what its line says.
inline std::optional<int> script_if_asked(int argc, char** argv) {
  if (argc != 3 || std::string(argv[1]) != "--script") return std::nullopt;
  return Scripted(argv[2]).play();
}

}  // namespace temper

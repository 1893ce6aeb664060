#pragma once
// The server of sessions before a stub of the engine, with one session.

#include <gtest/gtest.h>

#include "src/agents/service/session_service.h"
#include "tests/agents/server/server.h"

namespace temper {

inline const char* kRigTemplate = R"({% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})";

inline Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

/// A service and its desk, where the test is the engine.
class SessionRig {
 public:
  explicit SessionRig(const SessionLimits& limits = {})
      : tokenizer_(Tokenizer::load("tests/golden/tokenizer/minimind")),
        chat_(kRigTemplate, "test"),
        desk_(1),
        service_({.rules = {.context_tokens = 1000}}, tokenizer_, chat_, desk_),
        access_(open(limits)) {}

  int port() const {
    const std::string& url = access_.anthropic_base_url;
    return std::stoi(url.substr(url.rfind(':') + 1));
  }
  std::string chat(Json body, const std::string& headers = "") const {
    body["model"] = "policy";
    return request("/v1/chat/completions", body.dump(), headers);
  }
  std::string request(const std::string& path, const std::string& body,
                      const std::string& headers = "") const {
    return request_with(access_.key, path, body, headers);
  }
  static std::string request_with(const std::string& key, const std::string& path, const std::string& body,
                                  const std::string& headers = "") {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\nContent-Type: "
        "application/json\r\n{}Content-Length: {}\r\n\r\n{}",
        path, key, headers, body.size(), body);
  }
  const SessionAccess& access() const { return access_; }
  std::string say(const std::string& text) const { return chat({{"messages", Json::array({user(text)})}}); }
  uint64_t number() const { return access_.number; }
  SessionService& service() { return service_; }
  SessionAccess open_another() { return open({}); }

  /// What was asked of the engine since, once it is `count` requests.
  std::vector<std::pair<DeskNumber, Request>> asked(size_t count) {
    std::vector<std::pair<DeskNumber, Request>> all;
    becomes([&] {
      for (auto& fresh : desk_.take().fresh) all.push_back(std::move(fresh));
      return all.size() >= count;
    });
    EXPECT_EQ(all.size(), count);
    return all;
  }
  /// What has come since, or comes soon.
  std::vector<DeskNumber> asked_now() {
    desk_.wait(std::chrono::milliseconds(20));
    std::vector<DeskNumber> all;
    for (const auto& [number, request] : desk_.take().fresh) all.push_back(number);
    return all;
  }
  bool asks_nothing(double seconds) {
    return !becomes([&] { return !desk_.take().fresh.empty(); }, seconds);
  }

  /// `found`: rows of its prompt that lay in pages.
  void grow(DeskNumber number, const std::string& text, int64_t found = 0) {
    DeskNews news;
    for (const int32_t id : tokenizer_.encode(text, false)) {
      const std::string piece = tokenizer_.decode(std::vector<int32_t>{id}, false);
      news.grown.push_back({number, 0, id, -0.5, piece, found});
    }
    desk_.publish(0, std::move(news));
  }
  void finish(DeskNumber number, const std::string& text) {
    Response r;
    r.tokens = tokenizer_.encode(text, false);
    r.tokens.push_back(*tokenizer_.token_id("<|im_end|>"));
    r.text = text;
    r.finish = FinishReason::stop;
    r.mask.assign(r.tokens.size(), 1);
    r.logprobs.assign(r.tokens.size(), -0.5);
    r.versions = {{0, static_cast<int32_t>(r.tokens.size())}};
    DeskNews news;
    news.done.push_back({number, {std::move(r)}});
    desk_.publish(0, std::move(news));
  }
  std::vector<int32_t> tokens(const std::string& text) const { return tokenizer_.encode(text, false); }
  void refuse(DeskNumber number, const std::string& why) {
    DeskNews news;
    news.refused.push_back({number, why});
    desk_.publish(0, std::move(news));
  }

  SessionResult end(EndReason reason = EndReason::done) {
    service_.end(access_.number, {.reason = reason, .reward = 1.0});
    std::vector<SessionResult> ended;
    becomes([&] { return !(ended = service_.take_ended()).empty(); });
    EXPECT_EQ(ended.size(), 1u);
    return ended.empty() ? SessionResult{} : std::move(ended.front());
  }

 private:
  SessionAccess open(SessionLimits limits) {
    limits.context_tokens = 1000;
    return service_.open({.seed = 1,
                          .line_prompt = {},
                          .stop_token_ids = {*tokenizer_.token_id("<|im_end|>")},
                          .num_ids = tokenizer_.vocab_size(),
                          .limits = limits});
  }

  const Tokenizer tokenizer_;
  const ChatTemplate chat_;
  EngineDesk desk_;
  SessionService service_;
  const SessionAccess access_;
};

}  // namespace temper

#include "src/run/verbs/chat/conversation.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "src/core/process/results.h"
#include "src/core/text/printable.h"
#include "src/core/text/short_number.h"
#include "src/data/prompt_builder.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

std::atomic<bool> interrupted = false;  // a signal handler can reach nothing else

/// While one lives Ctrl-C asks, and ends a wait for input.
class InterruptKey {
 public:
  InterruptKey() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = true; };
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGINT, &action, &before_);
  }
  ~InterruptKey() { ::sigaction(SIGINT, &before_, nullptr); }
  InterruptKey(const InterruptKey&) = delete;
  InterruptKey& operator=(const InterruptKey&) = delete;

  /// It was pressed since the last call.
  static bool take() { return interrupted.exchange(false); }

 private:
  struct sigaction before_ {};
};

void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

/// Waits until stdin has something to read. False: Ctrl-C was pressed. It is looked for now and then: between
/// a look and the wait it would not end the wait.
bool wait_for_input() {
  constexpr int kLookMs = 100;
  for (pollfd input{STDIN_FILENO, POLLIN, 0}; !InterruptKey::take();)
    if (::poll(&input, 1, kLookMs) > 0) return true;
  return false;
}

/// A line without its end; empty after Ctrl-C; nothing at the end of stdin.
std::optional<std::string> read_message() {
  say("> ");
  std::string line;
  for (char c = 0;;) {
    if (!wait_for_input()) {
      say("\n");
      return "";
    }
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 && line.empty()) return std::nullopt;
    if (n <= 0 || c == '\n') return line;
    line += c;
  }
}

PromptOptions prompt_options() {
  PromptOptions options;
  options.messages_key = "messages";
  return options;
}

class Conversation {
 public:
  explicit Conversation(const ConversationParts& parts)
      : p_(parts), builder_(p_.tokenizer, p_.chat, prompt_options()) {}

  void answer(const std::string& message) {
    std::vector<int32_t> prompt = add(message);
    if (prompt.empty()) return;
    Request request{.data_position = turn_++, .prompt = std::move(prompt)};
    messages_.push_back({{"role", "assistant"}, {"content", generate(std::move(request))}});
  }

 private:
  std::vector<int32_t> prompt(const Json& messages) const {
    return builder_.build({{"messages", messages}}, "conversation", /*with_response=*/false).tokens;
  }

  /// Empty: the message alone is too long, and all stays as it is.
  std::vector<int32_t> add(const std::string& message) {
    const int64_t room = p_.engine.capacity() - 1;
    Json all = messages_;
    all.push_back({{"role", "user"}, {"content", message}});
    std::vector<int32_t> tokens = prompt(all);
    size_t left_out = 0;
    for (; std::ssize(tokens) > room && all.size() > 1; tokens = prompt(all), left_out += 2)
      all.erase(all.begin(), all.begin() + 2);  // a message and its answer
    if (std::ssize(tokens) > room) {
      say(fmt::format("[{}, at most {} fit: the message is left out]\n",
                      count_text(std::ssize(tokens), "token"), room));
      return {};
    }
    if (left_out > 0) say(fmt::format("[the oldest {} messages no longer fit: left out]\n", left_out));
    messages_ = std::move(all);
    return tokens;
  }

  std::string generate(Request request) {
    const auto show = [](const Engine::Grown& grown) { write_results(printable(grown.text)); };
    Generation generation(p_.engine, p_.options, &p_.tokenizer, show);
    generation.add(std::move(request));
    std::vector<Generation::Finished> finished;
    while (finished.empty())
      finished = InterruptKey::take() ? generation.cut(p_.ctx) : generation.step(p_.ctx);
    const Response& response = finished.front().responses.front();
    write_results("\n");
    if (response.finish == FinishReason::length)
      say(fmt::format("[cut after {}]\n", count_text(std::ssize(response.tokens), "token")));
    return response.text;
  }

  const ConversationParts& p_;
  PromptBuilder builder_;
  Json messages_ = Json::array();
  int64_t turn_ = 0;
};

}  // namespace

void converse(const ConversationParts& parts) {
  const InterruptKey key;
  Conversation conversation(parts);
  say("a line is a message; Ctrl-C stops an answer, Ctrl-D ends\n");
  while (const std::optional<std::string> message = read_message()) {
    if (const auto bad = find_invalid_utf8(*message))
      say(fmt::format("[byte {} is no UTF-8: the message is left out]\n", *bad));
    else if (message->find_first_not_of(" \t\r") != std::string::npos)
      conversation.answer(*message);
  }
  say("\n");
}

}  // namespace temper

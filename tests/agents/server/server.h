#pragma once
// Servers for tests, and what a process holds.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "src/agents/server/http_server.h"
#include "src/core/stopwatch.h"
#include "tests/agents/server/client.h"

namespace temper {

using Exchange = std::shared_ptr<HttpExchange>;

/// Exchanges on their way from the network's thread to a test's.
class Inbox {
 public:
  void put(Exchange exchange) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(exchange));
    came_.notify_all();
  }
  Exchange take() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::seconds(10), [&] { return !waiting_.empty(); })) return nullptr;
    Exchange first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Exchange> waiting_;
};

/// The key "good" is known; "/health" needs none; "/later" waits in the inbox; else the body is the answer.
class TestServer {
 public:
  explicit TestServer(const HttpOptions& options = {})
      : server_(
            options, [](const HttpHead& head, bool& known) { return let_in(head, known); },
            [this](Exchange exchange) {
              if (exchange->request().path == "/later") return inbox.put(std::move(exchange));
              exchange->reply(200, exchange->request().body);
            }) {}

  int port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  Inbox inbox;

 private:
  static std::optional<HttpRefusal> let_in(const HttpHead& head, bool& known) {
    known = head.key == "good";
    if (known || head.path == "/health") return {};
    return HttpRefusal{.status = 401, .body = "no key"};
  }
  HttpServer server_;
};

inline const std::string kKey = "Authorization: Bearer good\r\n";

inline bool becomes(const std::function<bool()>& condition, double seconds = 10) {
  for (const Stopwatch watch; watch.seconds() < seconds;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

inline int64_t entries(const char* folder) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}
inline int64_t open_descriptors() { return entries("/proc/self/fd"); }
inline int64_t threads() { return entries("/proc/self/task"); }

}  // namespace temper

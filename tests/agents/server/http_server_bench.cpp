// CPU of the HTTP server for a turn, without JSON: 256 clients of another process keep their connections,
// each answer comes from another thread, with whatever waits, every 10 ms. Whole answers of 2 kB, and streams
// of 32 events. Usage: http_server_bench [turns of each client]

#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "src/agents/server/http_server.h"
#include "src/core/stopwatch.h"
#include "tests/agents/server/client.h"

namespace temper {
namespace {

constexpr int kClients = 256, kEvents = 32;
constexpr std::chrono::milliseconds kStep{10};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Answers what waits, step by step; a stream gets one event in each.
class Answerer {
 public:
  explicit Answerer(bool streams) : streams_(streams), thread_([this] { work(); }) {}
  ~Answerer() {
    done_ = true;
    thread_.join();
  }
  void put(std::shared_ptr<HttpExchange> exchange) {
    const std::lock_guard lock(mutex_);
    fresh_.push_back({std::move(exchange), 0});
  }

 private:
  struct Turn {
    std::shared_ptr<HttpExchange> exchange;
    int events;
  };

  void work() {
    std::vector<Turn> running;
    while (!done_) {
      std::this_thread::sleep_for(kStep);
      {
        const std::lock_guard lock(mutex_);
        for (Turn& turn : fresh_) running.push_back(std::move(turn));
        fresh_.clear();
      }
      std::erase_if(running, [this](Turn& turn) { return step(turn); });
    }
  }

  bool step(Turn& turn) const {
    if (!streams_) {
      turn.exchange->reply(200, std::string(2000, 'a'));
      return true;
    }
    if (turn.events == 0) turn.exchange->begin();
    turn.exchange->send("data: " + std::string(180, 'a') + "\n\n");
    if (++turn.events < kEvents) return false;
    turn.exchange->end();
    return true;
  }

  bool streams_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  std::vector<Turn> fresh_;
  std::thread thread_;
};

int ask(int port, size_t bytes, int turns) {
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(port);
  const std::string request = post(std::string(bytes, 'x'));
  for (int turn = 0; turn < turns; ++turn) {
    for (const Client& client : clients) client.write(request);
    for (Client& client : clients)
      if (client.read().status != 200) return 1;
  }
  return 0;
}

void measure(const char* name, size_t bytes, bool streams, int turns) {
  Answerer answerer(streams);
  HttpServer server(
      {}, [](const HttpHead&, bool&) { return std::nullopt; },
      [&](std::shared_ptr<HttpExchange> exchange) { answerer.put(std::move(exchange)); });
  const double cpu = cpu_seconds();
  const Stopwatch watch;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ask(server.port(), bytes, turns));
  int status = 0;
  ::waitpid(child, &status, 0);
  const double all = static_cast<double>(kClients) * turns, spent = cpu_seconds() - cpu;
  std::printf("%-28s %8.1f us of CPU a turn, %5.1f s%s\n", name, 1e6 * spent / all, watch.seconds(),
              status == 0 ? "" : ", NOT ALL WERE ANSWERED");
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 40;
  temper::measure("2 kB, whole answers", 2'000, false, turns);
  temper::measure("60 kB, whole answers", 60'000, false, turns);
  temper::measure("2 kB, streams of 32 events", 2'000, true, turns / 10 + 1);
  return 0;
}

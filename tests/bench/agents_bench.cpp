// What agents cost beside the model. Sessions of a stub harness, of many turns each with up to 2 s for its
// tool: in how much of the time in which some turn waits does the engine run? And the server's CPU for a turn
// beyond tokenising: JSON, matching, rendering, HTTP, where nothing computes. Clients are another process.
//
// usage: agents_bench [sessions [turns]]     64 and 10; on a GPU's machine 256 and 20

#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "src/agents/service/session_service.h"
#include "src/core/file.h"
#include "src/core/stopwatch.h"
#include "src/ops/backend.h"
#include "tests/agents/server/client.h"
#include "tests/bench/measure.h"
#include "tests/support/tiny_model.h"

namespace temper {
namespace {

using bench::now;
using Interval = std::pair<double, double>;

constexpr int64_t kVocab = 6400, kContext = 32768;
constexpr int kTurnTokens = 32;
constexpr double kToolSeconds = 2;

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A client's side of a session.
struct Talk {
  int port = 0;
  std::string key;
  Json messages = Json::array();

  void say(const std::string& text) { messages.push_back({{"role", "user"}, {"content", text}}); }
  /// A turn; the bytes of its request.
  size_t ask(Client& client) {
    const std::string body = Json{{"model", "policy"}, {"messages", messages}}.dump();
    client.write(
        fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n"
                    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                    key, body.size(), body));
    const ClientAnswer answer = client.read(300);
    if (answer.status != 200) {
      std::fprintf(stderr, "%d %s\n", answer.status, answer.body.c_str());
      ::_exit(1);
    }
    messages.push_back(Json::parse(answer.body)["choices"][0]["message"]);
    return body.size();
  }
};

/// The server of a run's sessions, and a tokenizer with a template.
struct Service {
  Tokenizer tokenizer = Tokenizer::load("tests/golden/tokenizer/minimind");
  ChatTemplate chat{read_file("tests/golden/chat/templates/minimind.jinja", 1 << 20), "minimind"};
  EngineDesk desk{1};
  GenerateOptions sampling{.sampling = {},
                           .max_new_tokens = kTurnTokens,
                           .stop_token_ids = {},
                           .stop = {},
                           .logit_bias = {},
                           .num_sampleable = kVocab};
  SessionService service{options(), tokenizer, chat, desk};

  SessionService::Options options() const {
    SessionService::Options o;
    o.http.max_connections = 2048;
    o.rules.context_tokens = kContext;
    o.rules.defaults = sampling;
    return o;
  }
  std::vector<Talk> open(int count) {
    std::vector<Talk> talks;
    for (int i = 0; i < count; ++i) {
      const SessionAccess access =
          service.open({.data_position = i,
                        .line_prompt = {},
                        .stop_token_ids = {},
                        .num_ids = kVocab,
                        .limits = {.turn_tokens = kTurnTokens, .context_tokens = kContext}});
      const std::string& url = access.anthropic_base_url;
      talks.push_back({std::stoi(url.substr(url.rfind(':') + 1)), access.key});
    }
    return talks;
  }
};

double length_of_union(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double length = 0, end = 0;
  for (const auto& [from, to] : intervals) {
    if (to > end) length += to - std::max(from, end);
    end = std::max(end, to);
  }
  return length;
}

/// Plays all sessions, a thread each; the seconds in which some turn waited.
double play(std::vector<Talk> talks, int turns) {
  std::vector<Interval> waits;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < talks.size(); ++i)
    threads.emplace_back([&, i] {
      std::mt19937_64 random(i);
      Client client(talks[i].port);
      for (int turn = 0; turn < turns; ++turn) {
        std::uniform_real_distribution<double> tool(0, kToolSeconds);
        std::this_thread::sleep_for(std::chrono::duration<double>(tool(random)));
        talks[i].say(fmt::format("The tool says {}, and that turn {} is over.", random() % 1000, turn));
        const double begin = now();
        talks[i].ask(client);
        const std::lock_guard lock(mutex);
        waits.emplace_back(begin, now());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return length_of_union(std::move(waits));
}

/// `work` in a process of its own, which says a number; `meanwhile` until it ends.
template <class Work, class Meanwhile>
double apart(const Work& work, const Meanwhile& meanwhile) {
  int ends[2];
  CHECK(::pipe(ends) == 0, "no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    const double said = work();
    ::_exit(::write(ends[1], &said, sizeof said) == sizeof said ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) meanwhile();
  double heard = -1;
  CHECK(status == 0 && ::read(ends[0], &heard, sizeof heard) == sizeof heard, "the clients failed");
  ::close(ends[0]);
  ::close(ends[1]);
  return heard;
}

void measure_share(int sessions, int turns) {
  ModelConfig config = tiny_config(kVocab);
  config.hidden_size = 256;
  config.intermediate_size = 768;
  config.num_layers = 4;
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 32;
  config.max_position_embeddings = kContext;
  const auto model = tiny_model_of(config, DType::f32, kContext);
  Lane lane;
  EngineOptions options{.scheduler = {.max_running_sequences = sessions}};
  options.num_pages = int64_t{sessions} * turns * 6 + 1024;
  options.find_pages = true;
  Engine engine(*model, options, lane);
  Backend backend(Device::cpu);
  Service service;
  DeskGeneration generation(engine, service.sampling, &service.tokenizer, service.desk);
  double running = 0;
  int64_t steps = 0;
  const std::vector<Talk> talks = service.open(sessions);
  const Stopwatch watch;
  const double waited = apart([&] { return play(talks, turns); },
                              [&] {
                                generation.take(service.desk.take());
                                if (generation.idle())
                                  return service.desk.wait(std::chrono::milliseconds(20));
                                running += bench::seconds_of([&] { generation.step(backend.ctx()); });
                                ++steps;
                              });
  const RolloutCounters& rows = generation.counters();
  std::printf(
      "%d sessions of %d turns: the engine ran in %.1f %% of the %.1f s in which a turn waited (%.1f s in "
      "all, "
      "%ld steps)\n",
      sessions, turns, 100 * running / waited, waited, watch.seconds(), static_cast<long>(steps));
  std::map<std::string, double> counts = service.service.take_counts();
  std::printf("  rows prefilled %ld, found in pages %ld; again because of turns: %.2f %%\n",
              static_cast<long>(rows.rows_prefilled), static_cast<long>(rows.rows_shared),
              100 * counts["rollout/turn_rows_again"] / static_cast<double>(rows.rows_prefilled));
}

/// Answers at once what a desk was asked.
void answer_all(Service& service) {
  for (auto& [number, request] : service.desk.take().fresh) {
    Response r;
    r.tokens.assign(kTurnTokens, 300);
    r.text = service.tokenizer.decode(r.tokens, /*skip_special=*/true);
    r.mask.assign(kTurnTokens, 1);
    r.logprobs.assign(kTurnTokens, -1.0);
    r.versions = {{0, kTurnTokens}};
    r.finish = FinishReason::length;
    DeskNews news;
    news.done.push_back({number, {std::move(r)}});
    service.desk.publish(service.desk.lane_of(number), std::move(news));
  }
  service.desk.wait(std::chrono::milliseconds(20));
}

struct ServerTime {
  double seconds = 0;  // of CPU, but for the thread that stands for the engine
  double bytes = 0;    // of all requests
};

/// Sessions that begin with a long message and have so many short turns behind it.
ServerTime time_server(size_t bytes, int sessions, int turns) {
  Service service;
  const std::vector<Talk> talks = service.open(sessions);
  std::string history;
  while (history.size() < bytes) history += "A long history of many words, such as agents have. ";
  const auto work = [&] {
    double sent = 0;
    for (Talk talk : talks) {
      Client client(talk.port);
      talk.say(history);
      for (int turn = 0; turn < turns; ++turn) {
        sent += static_cast<double>(talk.ask(client));
        talk.say("The tool says 17, and that the turn is over.");
      }
    }
    return sent;
  };
  const double begin = cpu_seconds(RUSAGE_SELF) - cpu_seconds(RUSAGE_THREAD);
  const double sent = apart(work, [&] { answer_all(service); });
  return {cpu_seconds(RUSAGE_SELF) - cpu_seconds(RUSAGE_THREAD) - begin, sent};
}

/// By the difference of many turns and few: what a first turn costs, which tokenises all, is in both.
void measure_server(size_t bytes, int sessions) {
  constexpr int kFew = 2, kMany = 8;
  const ServerTime few = time_server(bytes, sessions, kFew), many = time_server(bytes, sessions, kMany);
  const int turns = sessions * (kMany - kFew);
  const Tokenizer tokenizer = Tokenizer::load("tests/golden/tokenizer/minimind");
  const std::string behind =
      "\n<|im_start|>user\nThe tool says 17, and that the turn is over.<|im_end|>\n<|im_start|>assistant\n";
  const double tokenising =
      bench::fast_seconds(0.2, [&] { tokenizer.encode(behind, /*add_special=*/false); });
  std::printf("requests of %.1f kB: %.3f ms of the server's CPU a turn beyond tokenising (%.3f ms)\n",
              (many.bytes - few.bytes) / turns / 1000,
              1000 * ((many.seconds - few.seconds) / turns - tokenising), 1000 * tokenising);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const int sessions = argc > 1 ? std::atoi(argv[1]) : 64, turns = argc > 2 ? std::atoi(argv[2]) : 10;
  temper::measure_server(2'000, 100);
  temper::measure_server(60'000, 40);
  temper::measure_share(sessions, turns);
  return 0;
}

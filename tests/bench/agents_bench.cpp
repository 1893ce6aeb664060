// What agents cost beside the model. Sessions of a stub harness, of many turns each with up to 2 s for its
// tool: in how much of the time in which some turn waits does the engine run, and which rows does it prefill
// again? What does decoding lose where an observation arrives in each step? And the server's CPU for a turn
// beyond tokenising: JSON, matching, rendering, HTTP, where nothing computes. Clients are another process.
//
// usage: agents_bench [cpu|cuda [sessions [turns]]]     on a CPU 64 and 10 of a model of 4M parameters, on a
// GPU 256 and 20 of the shape of Qwen3-1.7B in bf16

#include <sys/resource.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "src/agents/service/session_service.h"
#include "src/core/device.h"
#include "src/core/file.h"
#include "src/core/stopwatch.h"
#include "src/ops/backend.h"
#include "tests/agents/server/client.h"
#include "tests/bench/measure.h"
#include "tests/support/normal_block.h"
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

/// What computes, and what it computes.
struct Machine {
  Device device = Device::cpu;
  std::unique_ptr<Model> model = {};
  std::unique_ptr<Backend> backend = {};

  explicit Machine(Device d) : device(d) {
    ModelConfig config = tiny_config(kVocab);
    config.max_position_embeddings = kContext;
    const bool gpu = device == Device::cuda;
    config.hidden_size = gpu ? 2048 : 256;
    config.intermediate_size = 3 * config.hidden_size;
    config.num_layers = gpu ? 28 : 4;
    config.num_heads = gpu ? 16 : 8;
    config.num_kv_heads = gpu ? 8 : 4;
    config.head_dim = gpu ? 128 : 32;
    if (gpu) config.vocab_size = 151936;
    config.tie_word_embeddings = true;
    if (gpu) {
      const device::Found found = device::find_gpus();
      CHECK(!found.gpus.empty(), "no GPU: {}", found.why);
      device::select_gpu(found.gpus.front());
    }
    model = std::make_unique<Model>(
        config, ModelOptions{gpu ? DType::bf16 : DType::f32, kContext, /*with_gradients=*/false, device});
    const NormalBlock block;
    const double scale = 1 / std::sqrt(static_cast<double>(config.hidden_size));
    int64_t index = 0;
    for (Parameter& p : model->parameters().list()) {
      const bool norm = p.spec.init == Init::ones;
      block.fill(device, p.value, norm ? 0.1 : scale, norm ? 1.0 : 0.0, index++);
    }
    backend = std::make_unique<Backend>(device);
  }
  Ctx& ctx() { return backend->ctx(); }
  std::unique_ptr<Engine> engine(int sequences, int64_t pages) {
    EngineOptions options{.scheduler = {.max_running_sequences = sequences}};
    options.num_pages = pages;
    options.find_pages = true;
    return std::make_unique<Engine>(*model, options, ctx().lane);
  }
};

void measure_share(Machine& machine, int sessions, int turns) {
  const auto engine = machine.engine(sessions, int64_t{sessions} * turns * 5 + 1024);
  Service service;
  DeskGeneration generation(*engine, service.sampling, &service.tokenizer, service.desk);
  double running = 0;
  int64_t steps = 0;
  const std::vector<Talk> talks = service.open(sessions);
  const Stopwatch watch;
  const double waited = apart([&] { return play(talks, turns); },
                              [&] {
                                generation.take(service.desk.take());
                                if (generation.idle())
                                  return service.desk.wait(std::chrono::milliseconds(20));
                                running += bench::seconds_of([&] { generation.step(machine.ctx()); });
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

/// Sequences that decode, each in a turn of as many tokens as there are sequences; the seconds of a step.
/// With `observations` a turn ends in every step and comes back behind its history with kObservation more
/// tokens: as many tokens are drawn by each step as without, where prompts are longer by as many keys as
/// observations leave.
double seconds_of_decoding(Machine& machine, int sequences, bool observations) {
  constexpr int kObservation = 32, kPrompt = 512, kSteps = 192;
  const int turn_tokens = sequences, before = sequences + turn_tokens;
  const int lengthened = kObservation * (before + kSteps / 2) / turn_tokens;  // of a sequence, on average
  const auto engine = machine.engine(sequences, int64_t{sequences} * 128);
  GenerateOptions options;
  options.max_new_tokens = before + kSteps + 1;
  options.num_sampleable = kVocab;
  Generation generation(*engine, options, nullptr);
  std::vector<std::vector<int32_t>> histories;
  std::vector<size_t> owners;  // by number of the request
  const auto ask = [&](size_t i, int64_t tokens) {
    auto own = std::make_shared<GenerateOptions>(options);
    own->max_new_tokens = tokens;
    own->seed = owners.size();
    Request request{static_cast<int64_t>(i), histories[i], 1};
    request.own = std::move(own);
    generation.add(std::move(request));
    owners.push_back(i);
  };
  for (int i = 0; i < sequences; ++i) {
    histories.push_back(random_ids(observations ? kPrompt : kPrompt + lengthened, kVocab, i));
    // One is prefilled in each step, so one ends in each.
    ask(i, observations ? turn_tokens : options.max_new_tokens);
  }
  const auto step = [&] {
    for (Generation::Finished& turn : generation.step(machine.ctx())) {
      const size_t i = owners[turn.request];
      const std::vector<int32_t>& said = turn.responses.front().tokens;
      histories[i].insert(histories[i].end(), said.begin(), said.end());
      const auto observed = random_ids(kObservation, kVocab, owners.size());
      histories[i].insert(histories[i].end(), observed.begin(), observed.end());
      ask(i, turn_tokens);
    }
  };
  // Until every prompt is in the cache, steps are recorded, and the first turns end.
  for (int i = 0; i < before; ++i) step();
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) times.push_back(bench::seconds_of(step));
  return bench::median(times);
}

void measure_observations(Machine& machine, int sequences) {
  const double without = seconds_of_decoding(machine, sequences, false),
               with = seconds_of_decoding(machine, sequences, true);
  std::printf(
      "a step of %d sequences: %.2f ms, with an observation of 32 tokens in each %.2f ms: %.3f of the "
      "speed\n",
      sequences, 1000 * without, 1000 * with, without / with);
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
  using namespace temper;
  const bool gpu = argc > 1 && std::string(argv[1]) == "cuda";
  const int sessions = argc > 2 ? std::atoi(argv[2]) : gpu ? 256 : 64;
  const int turns = argc > 3 ? std::atoi(argv[3]) : gpu ? 20 : 10;
  measure_server(2'000, 100);
  measure_server(60'000, 40);
  Machine machine(gpu ? Device::cuda : Device::cpu);
  measure_observations(machine, 64);
  if (gpu) measure_observations(machine, 256);
  measure_share(machine, sessions, turns);
  return 0;
}

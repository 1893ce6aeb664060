#include "src/run/verbs/serve/serve_command.h"

#include <filesystem>
#include <fstream>

#include "src/agents/service/serve_service.h"
#include "src/config/load.h"
#include "src/core/log.h"
#include "src/core/process/results.h"
#include "src/core/process/stop_signal.h"
#include "src/core/stopwatch.h"
#include "src/run/plan/run_options.h"
#include "src/run/verbs/serve/host_port.h"
#include "src/run/verbs/shared_work.h"
#include "src/run/verbs/verb_engine.h"

namespace temper {
namespace {

constexpr std::chrono::milliseconds kLook{
    50};                              // how often a stop is looked for when nobody asks for anything
constexpr double kGraceSeconds = 60;  // for what runs when a stop comes
constexpr double kTellSeconds = 5;    // in which clients hear that they have to go
constexpr size_t kLeastKey = 16;
constexpr size_t kLanes = 1;
constexpr int64_t kPort = 8000;

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

/// The first line of a file that only its owner may read.
std::string read_key(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  if (!std::getline(file, key))
    fail(Exit::usage,
         {.what = "the key cannot be read",
          .where = "--key-file " + path,
          .why = "there is no such file, or it is empty",
          .fix = "write a line of at least 16 characters into it, such as `openssl rand -hex 16`"});
  while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back()))) key.pop_back();
  if (key.size() < kLeastKey)
    fail(Exit::usage,
         {.what = "the key is too short",
          .where = "--key-file " + path,
          .why = fmt::format("{} characters in its first line; at least {}", key.size(), kLeastKey),
          .fix = "`openssl rand -hex 16` makes a good one"});
  return key;
}

ServeService::Options service_options(const CommandLine& line, const Engine& engine,
                                      const GenerateOptions& sampling, const SharedWork& work) {
  ServeService::Options o;
  o.http.address = line.text("--address", o.http.address);
  o.http.port = static_cast<int>(line.integer("--port", kPort));
  o.http.port_key = "--port";
  if (line.has("--key-file")) o.key = read_key(line.text("--key-file"));
  if (o.key.empty() && !is_loopback(o.http.address))
    fail(Exit::usage, {.what = "a server that others reach needs a key",
                       .where = "--address " + o.http.address,
                       .why = "there is no --key-file, and whoever reaches the port could use the model",
                       .fix = "give --key-file FILE, or leave --address out: 127.0.0.1"});
  const std::filesystem::path folder(line.text(line.has("--model") ? "--model" : "--checkpoint"));
  o.rules.model = (folder.filename().empty() ? folder.parent_path() : folder).filename().string();
  o.rules.context_tokens = engine.capacity();
  o.rules.defaults = sampling;
  o.rules.team = work.all().rank();
  o.rules.teams = work.all().size();
  o.http.shared_port = port_of_host(work.neighbours(), o.http.address, o.http.port, o.http.port_key);
  return o;
}

std::string teams_text(int ranks) { return ranks > 1 ? fmt::format(", shared by {} ranks", ranks) : ""; }

/// Steps until a stop has come, here or to another rank of the host, and nothing is open any more. What is
/// open after `grace` seconds is cut, and its clients are told.
void serve(Ctx& c, DeskGeneration& generation, EngineDesk& desk, ServeService& service, SharedPort* port,
           double grace) {
  std::optional<Stopwatch> stopping;
  bool told = false;
  while (!stopping || (service.open() > 0 && stopping->seconds() < grace + kTellSeconds)) {
    if (port) port->note_alive();
    if ((stop_requested() || service.closed()) && !stopping) {
      log::warn("stop: {} open answers go on for {} s at most; a second signal ends at once", service.open(),
                grace);
      service.close();
      stopping.emplace();
    }
    if (stopping && !told && stopping->seconds() >= grace) {
      log::warn("stop: {} answers are not whole after {} s (--grace); their clients get 503", service.open(),
                grace);
      service.end_answers();
      told = true;
    }
    generation.take(desk.take());
    if (generation.idle())
      desk.wait(kLook);
    else
      generation.step(c);
  }
}

}  // namespace

int run_serve(const CommandLine& line) {
  install_stop_signals();
  const RolloutConfig r = load_rollout_overrides(line.overrides);
  SharedWork work(line);
  const ModelSource source = work.source(line);
  const TextTools tools = load_text_tools(source);
  const auto model = work.host().load(source);
  warn_of_lost_ends(*model, tools.tokenizer.get());
  require_ids_of_model(r, model->config().vocab_size);
  EngineOptions options = engine_of_verb(*model, r, longest_dialogue(*model, r));
  options.find_pages = true;
  Engine engine(*model, options, work.host().ctx().lane);
  const GenerateOptions sampling =
      sampling_options(r, model->config(), tools.tokenizer.get(),
                       static_cast<uint64_t>(line.integer("--seed", 0)), r.max_new_tokens);
  EngineDesk desk(kLanes);
  DeskGeneration generation(engine, sampling, tools.tokenizer.get(), desk);
  const ServeService::Options service_of = service_options(line, engine, sampling, work);
  ServeService service(service_of, *tools.tokenizer, tools.chat_template(), desk);
  signals_ask();
  if (work.neighbours().rank() == 0)
    write_results(fmt::format("serving at {} (context of {} tokens{})\n", service.url(), engine.capacity(),
                              teams_text(work.neighbours().size())));
  serve(work.host().ctx(), generation, desk, service, service_of.http.shared_port.get(),
        line.number("--grace", kGraceSeconds));
  return 0;
}

}  // namespace temper

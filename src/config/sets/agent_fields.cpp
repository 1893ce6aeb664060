#include "src/config/section.h"

namespace temper {
namespace {

constexpr Range kSeconds{0.01, 604800};
constexpr double kLargestBody = double{1 << 30};

}  // namespace

void agent_fields(RolloutConfig& c, Section f) {
  f("harness", c.harness,
    {.help =
         "a program that plays the samples of each prompt as sessions: it asks the policy's endpoint, and "
         "says the reward; \"episode\": a process for each session, \"service\": `workers` processes that "
         "play many each; in_flight: sessions at once (of each worker); several programs are a list, of "
         "which lines choose one with their key `environment`; empty: responses are generated without a "
         "program"});
  f("server.address", c.server.address,
    {.help = "address on which the endpoint listens; all but the loopback one let other hosts in, with a key",
     .format = Format::not_empty});
  f("server.port", c.server.port,
    {.help = "port of the first team that generates, the others have the next ones; 0: the system's choice",
     .range = {0, 65535}});
  f("server.threads", c.server.threads,
    {.help = "threads of each team for JSON, chat templates and tokenizing of requests",
     .unit = "threads",
     .range = {1, 256}});
  f("server.max_body", c.server.max_body_bytes,
    {.help = "largest request that the endpoint takes",
     .unit = "bytes",
     .range = {1024, kLargestBody},
     .format = Format::byte_size});
  f("max_turns", c.sessions.max_turns, {.help = "turns that a session may sample; 0: any", .unit = "turns"});
  f("max_turn_tokens", c.sessions.max_turn_tokens,
    {.help = "tokens that a turn of a session may have; 0: rollout.max_new_tokens", .unit = "tokens"});
  f("max_session_tokens", c.sessions.max_session_tokens,
    {.help = "tokens that a session may sample in all its turns; 0: any", .unit = "tokens"});
  f("session_seconds", c.sessions.session_seconds,
    {.help = "time that a session has from the start of its program, if its limit_seconds are not less; 0: "
             "limit_seconds alone",
     .unit = "seconds",
     .range = {0, 604800}});
  f("on_limit", c.sessions.on_limit,
    {.help = "a session that met a limit: its reward counts, its tokens are not trained but its reward "
             "counts, or it is left out",
     .choices = kOnLimit});
}

std::vector<Field> harness_fields(HarnessConfig& c) {
  std::vector<Field> fields;
  Section f("harness", fields);
  f("name", c.name, {.help = "", .format = Format::folder_name, .example = "game"});
  f("argv", c.argv, {.help = "", .format = Format::not_empty});
  f("kind", c.kind, {.help = "", .choices = kHarnessKinds});
  f("workers", c.workers, {.help = "", .range = {1, 256}});
  f("in_flight", c.in_flight, {.help = "", .range = {1, 4096}});
  f("limit_seconds", c.limit_seconds, {.help = "", .range = kSeconds});
  f("retries", c.retries, {.help = "", .range = {0, 100}});
  f("on_error", c.on_error, {.help = "", .choices = kOnProgramError});
  f("env", c.env, {.help = ""});
  f("aliases", c.aliases, {.help = "", .choices = kSessionModels});
  f("ignore", c.ignore, {.help = "", .format = Format::not_empty});
  return fields;
}

}  // namespace temper

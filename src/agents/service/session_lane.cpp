#include "src/agents/service/session_lane.h"

#include <algorithm>
#include <ctime>

#include "src/agents/programs/program_lines.h"
#include "src/agents/service/held_wishes.h"
#include "src/agents/turns/messages.h"

namespace temper {
namespace {

constexpr const char* kTrained = "policy";
constexpr const char* kUntrained = "policy-untrained";
constexpr size_t kMostUnderWay = 256;  // turns of a session: others have to get theirs, too

std::string header_of(const HttpRequest& http, const char* name) {
  const auto found = http.headers.find(name);
  return found == http.headers.end() ? std::string() : found->second;
}

/// A limit of the session, which another request does not change.
bool is_limit(const Error& error) {
  const auto* const refusal = dynamic_cast<const Refusal*>(&error);
  return refusal != nullptr && refusal->session_limit();
}

/// openai's and anthropic's clients say the how many-th try a request is.
bool is_retry(const HttpRequest& http) {
  const std::string tries = header_of(http, "x-stainless-retry-count");
  return !tries.empty() && tries != "0";
}

}  // namespace

void SessionLane::open(uint64_t number, const SessionSetup& setup, Session session,
                       const PausedSession& paused, bool after_stop) {
  open_.try_emplace(number, setup, std::move(session), paused, after_stop);
}

void SessionLane::receive_reward(uint64_t number, const std::shared_ptr<HttpExchange>& exchange) {
  const Door& door = p_.doors.at(Route::reward);
  const auto open = open_.find(number);
  if (open == open_.end())
    return reply_error(*exchange, door,
                       {.status = 400, .message = "the session has ended", .code = "session_ended"});
  try {
    const Json body = p_.doors.parse(exchange->request().body, p_.rules.context_tokens);
    SessionEnd end;
    std::string why = body.is_object() ? read_reward(body, end) : "the body is no object";
    if (why.empty() && !end.reward) why = "\"reward\" is missing";
    if (!why.empty()) return reply_error(*exchange, door, {.status = 400, .message = why, .param = "reward"});
    open->second.posted = std::move(end);
    exchange->reply(200, "{}");
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    reply_error(*exchange, door, door_error(e));
  }
}

void SessionLane::receive(uint64_t number, const std::shared_ptr<HttpExchange>& exchange) {
  const Route route = route_of(exchange->request().path)->route;
  const Door& door = p_.doors.at(route);
  const auto open = open_.find(number);
  if (open == open_.end())
    return reply_error(*exchange, door,
                       {.status = 400, .message = "the session has ended", .code = "session_ended"});
  try {
    answer(number, open->second, exchange, route);
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    open->second.at_limit = open->second.at_limit || is_limit(e);
    p_.results.count("rollout/requests_refused");
    reply_error(*exchange, door, door_error(e));
  }
}

Json SessionLane::models() const {
  std::vector<std::string> names{kTrained, kUntrained};
  for (const auto& [name, of] : p_.rules.aliases) names.push_back(name);
  return model_list(names, p_.rules.context_tokens);
}

void SessionLane::answer(uint64_t number, OpenSession& open, const std::shared_ptr<HttpExchange>& exchange,
                         Route route) {
  const HttpRequest& http = exchange->request();
  const bool turns = route == Route::chat || route == Route::messages || route == Route::tokens;
  if (route == Route::models) return exchange->reply(200, dump_json_line(models()));
  const Json body = http.method == "POST" ? p_.doors.parse(http.body, p_.rules.context_tokens) : Json();
  if (route == Route::count_tokens) {
    const DoorRequest r = read(body, route);
    const Json counted{{"input_tokens", p_.cut.whole(r.messages, r.tools, r.arguments).size()}};
    return exchange->reply(200, dump_json_line(counted));
  }
  if (!turns) {
    p_.doors.require_short(body, p_.rules.context_tokens);
    return exchange->reply(
        200, dump_json_line(describe(route, body, p_.doors.tokenizer(), p_.rules.context_tokens)));
  }
  answer_turn(number, open, exchange, read(body, route));
}

DoorRequest SessionLane::read(const Json& body, Route route) const {
  DoorRequest request = p_.doors.at(route).read(body, p_.rules.doors);
  p_.doors.require_short(request.messages, p_.rules.context_tokens);
  p_.doors.require_short(request.tools, p_.rules.context_tokens);
  p_.cut.require_tools_shown(request.messages, request.tools, request.arguments);
  return request;
}

/// Whether the turns of the model that a request names are trained; nothing where no model has the name.
std::optional<bool> SessionLane::is_trained(const std::string& model) const {
  const auto alias = p_.rules.aliases.find(model);
  const std::string& name = alias == p_.rules.aliases.end() ? model : alias->second;
  if (name == kTrained) return true;
  return name == kUntrained ? std::optional(false) : std::nullopt;
}

void SessionLane::answer_turn(uint64_t number, OpenSession& open,
                              const std::shared_ptr<HttpExchange>& exchange, DoorRequest request) {
  const HttpRequest& http = exchange->request();
  const Door& door = p_.doors.at(route_of(http.path)->route);
  const std::optional<bool> trained = is_trained(request.model);
  if (!trained)
    return reply_error(*exchange, door,
                       {.status = 404,
                        .message = fmt::format("no model has this name; `{}`, `{}` and the aliases of "
                                               "rollout.harness are there",
                                               kTrained, kUntrained)});
  if (open.under_way() >= kMostUnderWay)
    return reply_error(*exchange, door,
                       {.status = 429,
                        .message = fmt::format("{} turns of the session are under way", kMostUnderWay),
                        .retry_after_seconds = 1});
  count_held(request.sampling, p_.rules.defaults, p_.results);
  TurnAsk ask{.messages = request.messages,
              .tools = request.tools,
              .arguments = request.arguments,
              .trained = *trained,
              .max_new_tokens = request.max_new_tokens,
              .stop = request.stop,
              .retry = is_retry(http),
              .idempotency_key = header_of(http, "idempotency-key")};
  if (!request.prompts.empty()) ask.prompt = request.prompts.front();
  const std::vector<TurnStart> starts = open.ask_all(std::move(ask), request.n);
  for (const TurnStart& s : starts)
    if (s.kind == TurnStart::Kind::sample) open.begin(s, format_of(request), request.tools);
  const auto client = client_of(open, exchange, std::move(request), starts);
  for (int32_t i = 0; i < std::ssize(starts); ++i) {
    open.add_client(starts[static_cast<size_t>(i)], client, i);
    start(number, open, starts[static_cast<size_t>(i)]);
  }
}

TurnFormat SessionLane::format_of(const DoorRequest& request) const {
  return request.messages.is_array() ? p_.cut.format(request.arguments) : TurnFormat{};
}

std::shared_ptr<OpenAnswer> SessionLane::client_of(const OpenSession& open,
                                                   const std::shared_ptr<HttpExchange>& exchange,
                                                   DoorRequest request,
                                                   const std::vector<TurnStart>& starts) const {
  const Door& door = p_.doors.at(route_of(exchange->request().path)->route);
  const size_t first = starts.front().turn;
  DoorAnswer head{.id = "chatcmpl-" + open.session.turn(first).key,
                  .created = std::time(nullptr),
                  .prompt = open.session.prompt(first),
                  .choices = {}};
  head.prompt_tokens = std::ssize(head.prompt);
  const TurnFormat format = format_of(request);
  std::vector<size_t> of_choice;
  for (const TurnStart& s : starts) of_choice.push_back(s.turn);
  const auto call_id = [&session = open.session, of_choice](int32_t index, size_t call) {
    return session.call_id(of_choice[static_cast<size_t>(index)], call);
  };
  return std::make_shared<OpenAnswer>(exchange, door, std::move(request), std::move(head), format, call_id);
}

void SessionLane::ask(uint64_t number, const Json& messages, const OnPipeAnswer& answer) {
  const auto at = open_.find(number);
  if (at == open_.end()) return;
  OpenSession& open = at->second;
  try {
    for (const Json& message : normal_messages(messages)) open.said.push_back(message);
    const TurnStart s = open.session.ask({.messages = open.said});
    if (s.kind == TurnStart::Kind::sample) open.begin(s, p_.cut.format(Json()), Json());
    open.add_pipe(s.turn, answer);
    start(number, open, s);
    if (s.kind == TurnStart::Kind::answered) open.tell_pipe(s.turn);
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    const auto* const refusal = dynamic_cast<const Refusal*>(&e);
    answer({.refused = e.problem().what + ": " + e.problem().why,
            .at_limit = is_limit(e) || (refusal != nullptr && refusal->context_length())});
  }
}

void SessionLane::start(uint64_t number, OpenSession& open, const TurnStart& start) {
  if (start.kind != TurnStart::Kind::sample) return;
  if (step_tokens_ > 0 && (open.rests || open.spent_up_to(start.turn) >= step_tokens_)) {
    open.hold(start.turn);
    if (open.may_rest()) begin_rest(number, open);
    return;
  }
  const int64_t before = open.spent_up_to(open.session.turn(start.turn).parent);
  ask_engine(number, open, start, step_tokens_ > 0 ? step_tokens_ - before : 0);
}

/// `tokens`: that it may have in this step, 0: any number.
void SessionLane::ask_engine(uint64_t number, OpenSession& open, const TurnStart& start, int64_t tokens) {
  GenerateOptions own = p_.rules.defaults;
  own.seed = start.seed;
  own.tokens_per_call = tokens;
  const int64_t room = p_.rules.context_tokens - std::ssize(start.prompt);
  own.max_new_tokens = start.max_new_tokens > 0 ? std::min(start.max_new_tokens, room) : room;
  own.stop.insert(own.stop.end(), start.stop.begin(), start.stop.end());
  Request request{.data_position = open.data_position,
                  .prompt = start.prompt,
                  .first_sample = open.sample,
                  .own = std::make_shared<const GenerateOptions>(std::move(own))};
  if (start.begun) {
    request.begun = {*start.begun};
    request.after_stop = open.after_stop;
  }
  open.give(start.turn, start.begun);
  asked_.emplace(p_.desk.ask(p_.lane, std::move(request)), Asked{number, start.turn});
}

void SessionLane::begin_rest(uint64_t number, OpenSession& open) {
  open.rests = true;
  p_.results.rest({number, open.record()});
}

void SessionLane::rest(uint64_t number) {
  const auto open = open_.find(number);
  if (open != open_.end() && !open->second.rests) begin_rest(number, open->second);
}

void SessionLane::begin_step(int64_t tokens) {
  step_tokens_ = tokens;
  for (auto& [number, open] : open_)
    for (const size_t turn : open.begin_step()) start(number, open, open.session.start_of(turn));
}

void SessionLane::suspend(uint64_t number) {
  const auto entry = open_.extract(number);
  if (!entry) return;
  entry.mapped().fail_clients({.status = 503, .message = "the run stops"});
  std::erase_if(asked_, [&](const auto& asked) { return asked.second.session == number; });
  p_.results.rest({number, entry.mapped().record()});
}

void SessionLane::hear(DeskNews news) {
  for (const DeskNews::Grown& g : news.grown)
    if (const auto [open, turn] = turn_of(g.number); open)
      p_.results.count(open->grow(turn, {{g.token}, {g.logprob}, g.text, g.found}));
  for (DeskNews::Done& d : news.done) {
    const auto [open, turn] = turn_of(d.number);
    const auto asked = asked_.extract(d.number);
    if (!open) continue;
    open->take(turn, std::move(d.responses.front()));
    if (open->may_rest()) begin_rest(asked.mapped().session, *open);
  }
  for (const DeskNews::Refused& r : news.refused) {
    const auto [open, turn] = turn_of(r.number);
    const auto asked = asked_.extract(r.number);
    if (!open) continue;
    open->refuse(turn, r.why);
    if (open->may_rest()) begin_rest(asked.mapped().session, *open);
  }
}

std::pair<OpenSession*, size_t> SessionLane::turn_of(DeskNumber number) {
  const auto asked = asked_.find(number);
  if (asked == asked_.end()) return {nullptr, 0};
  const auto open = open_.find(asked->second.session);
  return {open == open_.end() ? nullptr : &open->second, asked->second.turn};
}

void SessionLane::end(uint64_t number, SessionEnd end) {
  auto entry = open_.extract(number);
  if (!entry) return;
  std::erase_if(asked_, [&](const auto& asked) {
    if (asked.second.session != number) return false;
    p_.desk.cancel(asked.first);
    return true;
  });
  SessionResult result = entry.mapped().end(number, std::move(end));
  if (entry.mapped().session.diverged()) p_.results.count("rollout/sessions_diverged");
  p_.results.put(std::move(result));
}

void SessionLane::tick() {
  const auto now = OpenAnswer::Clock::now();
  for (auto& [number, open] : open_) open.tick(now);
}

}  // namespace temper

#include "src/agents/service/session_lane.h"

#include <algorithm>
#include <ctime>

#include "src/agents/programs/program_lines.h"
#include "src/agents/turns/messages.h"

namespace temper {
namespace {

constexpr const char* kTrained = "policy";
constexpr const char* kUntrained = "policy-untrained";

std::string header_of(const HttpRequest& http, const char* name) {
  const auto found = http.headers.find(name);
  return found == http.headers.end() ? std::string() : found->second;
}

/// openai's and anthropic's clients say the how many-th try a request is.
bool is_retry(const HttpRequest& http) {
  const std::string tries = header_of(http, "x-stainless-retry-count");
  return !tries.empty() && tries != "0";
}

}  // namespace

void SessionResults::put(SessionResult result) {
  const std::lock_guard lock(mutex_);
  ended_.push_back(std::move(result));
}

std::vector<SessionResult> SessionResults::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

void SessionResults::count(const std::string& name) {
  const std::lock_guard lock(mutex_);
  ++counts_[name];
}

std::map<std::string, double> SessionResults::take_counts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counts_, {});
}

void SessionLane::open(uint64_t number, const SessionSetup& setup) {
  open_.emplace(number, Open{Session(setup, p_.cut), setup.data_position, setup.sample});
}

void SessionLane::receive_reward(uint64_t number, const std::shared_ptr<HttpExchange>& exchange) {
  const Door& door = p_.doors.at(Route::reward);
  const auto open = open_.find(number);
  if (open == open_.end())
    return reply_error(*exchange, door,
                       {.status = 400, .message = "the session has ended", .code = "session_ended"});
  try {
    const Json body = parse_json(exchange->request().body, "body", kBodyLimits);
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
    p_.results.count("rollout/requests_refused");
    reply_error(*exchange, door, door_error(e));
  }
}

Json SessionLane::models() const {
  std::vector<std::string> names{kTrained, kUntrained};
  for (const auto& [name, of] : p_.rules.aliases) names.push_back(name);
  return model_list(names, p_.rules.context_tokens);
}

void SessionLane::answer(uint64_t number, Open& open, const std::shared_ptr<HttpExchange>& exchange,
                         Route route) {
  const HttpRequest& http = exchange->request();
  const bool turns = route == Route::chat || route == Route::messages || route == Route::tokens;
  if (route == Route::models) return exchange->reply(200, dump_json_line(models()));
  const Json body = http.method == "POST" ? parse_json(http.body, "body", kBodyLimits) : Json();
  if (route == Route::count_tokens) {
    const DoorRequest r = p_.doors.at(route).read(body, p_.rules.doors);
    const size_t tokens = p_.cut.whole(r.messages, r.tools, r.arguments).size();
    const Json counted{{"input_tokens", tokens}};
    return exchange->reply(200, dump_json_line(counted));
  }
  if (!turns)
    return exchange->reply(
        200, dump_json_line(describe(route, body, p_.doors.tokenizer(), p_.rules.context_tokens)));
  answer_turn(number, open, exchange, p_.doors.at(route).read(body, p_.rules.doors));
}

/// Whether the turns of the model that a request names are trained; nothing where no model has the name.
std::optional<bool> SessionLane::is_trained(const std::string& model) const {
  const auto alias = p_.rules.aliases.find(model);
  const std::string& name = alias == p_.rules.aliases.end() ? model : alias->second;
  if (name == kTrained) return true;
  return name == kUntrained ? std::optional(false) : std::nullopt;
}

void SessionLane::answer_turn(uint64_t number, Open& open, const std::shared_ptr<HttpExchange>& exchange,
                              DoorRequest request) {
  const HttpRequest& http = exchange->request();
  const Door& door = p_.doors.at(route_of(http.path)->route);
  const std::optional<bool> trained = is_trained(request.model);
  if (!trained)
    return reply_error(*exchange, door,
                       {.status = 404,
                        .message = fmt::format("no model has this name; `{}`, `{}` and the aliases of "
                                               "rollout.harness are there",
                                               kTrained, kUntrained)});
  for (const std::string& name : request.sampling.names())
    p_.results.count("rollout/run_sampling_held/" + name);
  TurnAsk ask{.messages = request.messages,
              .tools = request.tools,
              .arguments = request.arguments,
              .trained = *trained,
              .max_new_tokens = request.max_new_tokens,
              .stop = request.stop,
              .retry = is_retry(http),
              .idempotency_key = header_of(http, "idempotency-key")};
  if (!request.prompts.empty()) ask.prompt = request.prompts.front();
  std::vector<TurnStart> starts;
  for (int32_t i = 0; i < request.n; ++i) starts.push_back(open.session.ask(ask));
  const TurnFormat format = request.messages.is_array() ? p_.cut.format(request.arguments) : TurnFormat{};
  for (const TurnStart& s : starts) {
    open.formats.emplace(s.turn, format);
    open.tools.emplace(s.turn, request.tools);
  }
  const auto client = client_of(open, exchange, std::move(request), starts);
  for (int32_t i = 0; i < std::ssize(starts); ++i) {
    const TurnStart& s = starts[static_cast<size_t>(i)];
    if (s.kind == TurnStart::Kind::answered) client->finish(i, open.session.turn(s.turn).response);
    open.waiting[s.turn].push_back({client, i});
    start(number, open, s);
  }
}

std::shared_ptr<OpenAnswer> SessionLane::client_of(const Open& open,
                                                   const std::shared_ptr<HttpExchange>& exchange,
                                                   DoorRequest request,
                                                   const std::vector<TurnStart>& starts) const {
  const Door& door = p_.doors.at(route_of(exchange->request().path)->route);
  const size_t first = starts.front().turn;
  DoorAnswer head{.id = "chatcmpl-" + open.session.turn(first).key,
                  .created = std::time(nullptr),
                  .prompt = open.session.prompt(first),
                  .choices = {}};
  std::vector<size_t> of_choice;
  for (const TurnStart& s : starts) of_choice.push_back(s.turn);
  const auto call_id = [&session = open.session, of_choice](int32_t index, size_t call) {
    return session.call_id(of_choice[static_cast<size_t>(index)], call);
  };
  return std::make_shared<OpenAnswer>(exchange, door, std::move(request), std::move(head),
                                      open.formats.at(first), call_id);
}

void SessionLane::ask(uint64_t number, const Json& messages, const OnPipeAnswer& answer) {
  const auto at = open_.find(number);
  if (at == open_.end()) return;
  Open& open = at->second;
  try {
    for (const Json& message : normal_messages(messages)) open.said.push_back(message);
    const TurnStart s = open.session.ask({.messages = open.said});
    open.formats.emplace(s.turn, p_.cut.format(Json()));
    open.pipe.emplace(s.turn, answer);
    start(number, open, s);
    if (s.kind == TurnStart::Kind::answered) tell_pipe(open, s.turn);
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    answer({.refused = e.problem().what + ": " + e.problem().why});
  }
}

/// A program that hears its answer over the pipe has got it.
void SessionLane::tell_pipe(Open& open, size_t turn) {
  const auto answer = open.pipe.extract(turn);
  if (!answer) return;
  const SessionTurn& t = open.session.turn(turn);
  open.said.push_back(t.answer);
  open.session.delivered(turn);
  answer.mapped()({.turn = {{"text", t.response.text},
                            {"tool_calls", t.answer.value("tool_calls", Json::array())},
                            {"finish", finish_reason_name(t.response.finish)}}});
}

void SessionLane::start(uint64_t number, Open& open, const TurnStart& start) {
  if (start.kind != TurnStart::Kind::sample) return;
  GenerateOptions own = p_.rules.defaults;
  own.seed = start.seed;
  const int64_t room = p_.rules.context_tokens - std::ssize(start.prompt);
  own.max_new_tokens = start.max_new_tokens > 0 ? std::min(start.max_new_tokens, room) : room;
  own.stop.insert(own.stop.end(), start.stop.begin(), start.stop.end());
  Request request{.data_position = open.data_position,
                  .prompt = start.prompt,
                  .first_sample = open.sample,
                  .own = std::make_shared<const GenerateOptions>(std::move(own))};
  if (start.begun) request.begun = {*start.begun};
  asked_.emplace(p_.desk.ask(p_.lane, std::move(request)), Asked{number, start.turn});
}

void SessionLane::hear(DeskNews news) {
  const auto clients_of = [&](DeskNumber number) -> std::vector<Waiting>* {
    const auto at = asked_.find(number);
    const auto open = at == asked_.end() ? open_.end() : open_.find(at->second.session);
    return open == open_.end() ? nullptr : &open->second.waiting[at->second.turn];
  };
  for (const DeskNews::Grown& g : news.grown)
    if (std::vector<Waiting>* clients = clients_of(g.number))
      for (const Waiting& client : *clients) client.answer->grow(client.index, g.token, g.logprob, g.text);
  for (DeskNews::Done& d : news.done)
    if (const auto asked = asked_.extract(d.number))
      turn_is_over(asked.mapped(), std::move(d.responses.front()));
  for (const DeskNews::Refused& r : news.refused)
    if (std::vector<Waiting>* clients = clients_of(r.number))
      for (const Waiting& client : *clients) client.answer->fail({.status = 400, .message = r.why});
}

void SessionLane::turn_is_over(const Asked& asked, Response response) {
  const auto at = open_.find(asked.session);
  if (at == open_.end()) return;
  Open& open = at->second;
  const TurnText said = parse_turn(response.text, open.formats[asked.turn], open.tools[asked.turn]);
  open.session.sampled(asked.turn, response, said);
  for (const Waiting& client : open.waiting[asked.turn]) client.answer->finish(client.index, response);
  tell_pipe(open, asked.turn);
}

/// Who has got what he asked for, and who has gone: a client that closes its connection right behind the last
/// byte may seem gone before the network knows that all was sent, so it is looked at twice.
void SessionLane::look_at_clients(Open& open) {
  for (auto& [turn, clients] : open.waiting)
    std::erase_if(clients, [&, turn = turn](Waiting& client) {
      if (client.answer->delivered()) {
        open.session.delivered(turn);
        return true;
      }
      const bool gone = client.answer->gone();
      if (!std::exchange(client.seemed_gone, gone) || !gone) return false;
      open.session.client_gone(turn);
      return true;
    });
  std::erase_if(open.waiting, [](const auto& entry) { return entry.second.empty(); });
}

void SessionLane::end(uint64_t number, SessionEnd end) {
  auto entry = open_.extract(number);
  if (!entry) return;
  Open& open = entry.mapped();
  for (auto& [turn, clients] : open.waiting)
    for (const Waiting& client : clients)
      client.answer->fail({.status = 400, .message = "the session has ended", .code = "session_ended"});
  std::erase_if(asked_, [&](const auto& asked) {
    if (asked.second.session != number) return false;
    p_.desk.cancel(asked.first);
    return true;
  });
  if (open.posted && !end.reward) {
    end.reward = open.posted->reward;
    end.parts = open.posted->parts;
  }
  if (end.reason == EndReason::done && open.session.turns() == 0) end.reason = EndReason::no_request;
  open.session.end(end);
  p_.results.put({.number = number,
                  .end = *open.session.ended(),
                  .samples = open.session.samples(),
                  .turns = static_cast<int32_t>(open.session.turns()),
                  .requests = open.session.requests(),
                  .diverged = open.session.diverged()});
}

void SessionLane::tick() {
  const auto now = OpenAnswer::Clock::now();
  for (auto& [number, open] : open_) {
    for (const auto& [turn, clients] : open.waiting)
      for (const Waiting& client : clients) client.answer->tick(now);
    look_at_clients(open);
  }
}

}  // namespace temper

#include "src/agents/sessions/session.h"

#include <algorithm>
#include <utility>

#include "src/agents/sessions/canonical.h"
#include "src/agents/sessions/session_record.h"
#include "src/agents/sessions/session_requests.h"
#include "src/agents/sessions/session_samples.h"
#include "src/agents/sessions/session_state.h"
#include "src/agents/sessions/turn_key.h"
#include "src/rl/routes.h"

namespace temper {
namespace {

/// Leaves the rows that the path before lacks, which has `before` tokens: there is one of each but the last.
void keep_own_routes(Response& response, int64_t before, int64_t prompt_tokens) {
  if (response.routes.empty()) return;
  const RouteShape shape = route_shape(response.routes);
  const int64_t rows = route_rows(response.routes), tokens = prompt_tokens + std::ssize(response.tokens);
  CHECK(rows == tokens - 1, "{} rows of routes of a turn that ends with token {}", rows, tokens);
  Routes own = make_routes(shape);
  const int64_t first = std::max<int64_t>(before - 1, 0);
  own.insert(own.end(), response.routes.end() - (rows - first) * shape.row_bytes(), response.routes.end());
  response.routes = std::move(own);
}

void check_response(const Response& r) {
  int64_t versions = 0;
  for (const auto& [version, count] : r.versions) versions += count;
  CHECK(!r.tokens.empty() && r.mask.size() == r.tokens.size() && r.logprobs.size() == r.tokens.size() &&
            versions == std::ssize(r.tokens) && r.finish != FinishReason::unfinished,
        "a turn of {} tokens, {} log-probs, {} of versions", r.tokens.size(), r.logprobs.size(), versions);
}

}  // namespace

Session::Session(SessionSetup setup, const TurnCut& cut)
    : state_(new State{.setup = std::move(setup), .cut = cut}) {}
Session::Session(SessionSetup setup, const TurnCut& cut, const Json& record)
    : Session(std::move(setup), cut) {
  state_->resumed = true;
  read_session_record(record, state_->turns, state_->end);
  for (size_t turn = 0; turn < turns(); ++turn) state_->enter(turn);
}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

TurnStart Session::ask(const TurnAsk& ask) { return state_->ask(ask); }

void Session::begun(size_t turn, Response response) {
  if (!response.tokens.empty()) state_->turns.at(turn).begun = std::move(response);
}

TurnStart Session::start_of(size_t turn) const { return state_->engine_start(turn); }

void Session::sampled(size_t turn, Response response, const TurnText& said) {
  if (state_->end) return;
  CHECK(turn < turns() && !this->turn(turn).finished, "turn {} of {} was sampled", turn, turns());
  check_response(response);
  const auto& t = this->turn(turn);
  keep_own_routes(response, t.prompt_tokens - std::ssize(t.behind), t.prompt_tokens);
  std::vector<std::string> ids;
  for (size_t i = 0; i < said.calls.size(); ++i) ids.push_back(call_id(turn, i));
  state_->turns.finish(turn, std::move(response), turn_message(said, ids));
}

void Session::withdraw(size_t turn) {
  KnownTurn& t = state_->turns.at(turn);
  CHECK(!t.turn.finished, "turn {} of {} is withdrawn after its end", turn, turns());
  t.live = false;
  t.clients = 0;
}

void Session::delivered(size_t turn) {
  if (!state_->end) state_->turns.at(turn).turn.received = true;
}

void Session::client_gone(size_t turn) {
  if (!state_->end && state_->turns[turn].clients > 0) --state_->turns.at(turn).clients;
}

size_t Session::turns() const { return state_->turns.size(); }
const SessionTurn& Session::turn(size_t turn) const { return state_->turns[turn].turn; }
std::vector<int32_t> Session::prompt(size_t turn) const { return state_->turns.prompt(turn); }
std::string Session::call_id(size_t turn, size_t index) const {
  return call_id_of(this->turn(turn).key, index);
}
int64_t Session::sampled_tokens() const { return state_->turns.sampled_tokens(); }

void Session::end(SessionEnd end) {
  CHECK(!state_->end, "a session ended as {} and as {}", end_reason_name(state_->end->reason),
        end_reason_name(end.reason));
  state_->end = std::move(end);
}
const std::optional<SessionEnd>& Session::ended() const { return state_->end; }

std::vector<SessionSample> Session::samples() const { return session_samples(state_->turns); }
Json Session::record() const { return session_record(state_->turns, state_->end); }
Json Session::requests() const { return session_requests(state_->turns); }
bool Session::diverged() const {
  return state_->asked_beyond && state_->turns.live() < std::ssize(state_->turns);
}

}  // namespace temper

#include "src/agents/service/open_session.h"

#include <algorithm>
#include <utility>

namespace temper {

OpenSession::OpenSession(const SessionSetup& setup, Session of, const PausedSession& paused, bool stopped)
    : session(std::move(of)),
      data_position(setup.data_position),
      sample(setup.sample),
      after_stop(stopped),
      heard_before_(paused.heard) {
  if (stopped) spent_ = paused.spent;
}

std::vector<TurnStart> OpenSession::ask_all(TurnAsk ask, int32_t answers) {
  look_at_clients();  // a request is another one's again where that one's client is gone
  std::vector<TurnStart> starts;
  try {
    for (ask.choice = 0; ask.choice < answers; ++ask.choice) starts.push_back(session.ask(ask));
  } catch (const Error&) {
    for (const TurnStart& s : starts)
      s.kind == TurnStart::Kind::sample ? session.withdraw(s.turn) : session.client_gone(s.turn);
    throw;
  }
  return starts;
}

void OpenSession::begin(const TurnStart& start, const TurnFormat& format, const Json& tools) {
  UnderWay way{format, tools};
  if (start.begun) way.heard = {start.begun->tokens, start.begun->logprobs, ""};
  if (auto before = heard_before_.extract(start.turn)) way.heard.text = std::move(before.mapped());
  under_way_.insert_or_assign(start.turn, std::move(way));
}

void OpenSession::add_client(const TurnStart& start, std::shared_ptr<OpenAnswer> answer, int32_t index) {
  if (start.kind == TurnStart::Kind::answered) {
    if (const auto found = found_.find(start.turn); found != found_.end())
      answer->grow(index, {.found = found->second});
    answer->finish(index, session.turn(start.turn).response);
  } else if (const TurnGrowth& heard = under_way_.at(start.turn).heard; !heard.tokens.empty()) {
    answer->grow(index, heard);
  }
  waiting_[start.turn].push_back({std::move(answer), index});
}

void OpenSession::tell_pipe(size_t turn) {
  const auto answer = pipe_.extract(turn);
  if (!answer) return;
  const SessionTurn& t = session.turn(turn);
  said.push_back(t.answer);
  session.delivered(turn);
  answer.mapped()({.turn = {{"text", t.response.text},
                            {"tool_calls", t.answer.value("tool_calls", Json::array())},
                            {"finish", finish_reason_name(t.response.finish)}}});
}

std::optional<TurnRows> OpenSession::grow(size_t turn, const TurnGrowth& growth) {
  TurnGrowth& heard = under_way_.at(turn).heard;
  const bool begins = heard.tokens.empty();
  heard.tokens.insert(heard.tokens.end(), growth.tokens.begin(), growth.tokens.end());
  heard.logprobs.insert(heard.logprobs.end(), growth.logprobs.begin(), growth.logprobs.end());
  heard.text += growth.text;
  heard.found = found_.try_emplace(turn, growth.found).first->second;
  for (const Waiting& client : waiting_[turn]) client.answer->grow(client.index, growth);
  return begins ? std::optional(rows_of(turn, growth.found)) : std::nullopt;
}

TurnRows OpenSession::rows_of(size_t turn, int64_t found) const {
  const SessionTurn& t = session.turn(turn);
  // The last token that was sampled has never been fed.
  const bool here = t.parent && spent_.contains(*t.parent) && found_.contains(*t.parent);
  const int64_t known = here ? t.prompt_tokens - std::ssize(t.behind) - 1 : 0;
  return {t.prompt_tokens, found, std::max<int64_t>(0, known - found)};
}

void OpenSession::refuse(size_t turn, const std::string& why) {
  session.withdraw(turn);
  under_way_.erase(turn);
  for (const Waiting& client : waiting_[turn]) client.answer->fail({.status = 400, .message = why});
  waiting_.erase(turn);
  if (const auto answer = pipe_.extract(turn)) answer.mapped()({.refused = why});
}

void OpenSession::take(size_t turn, Response response) {
  UnderWay& way = under_way_.at(turn);
  spent_[turn] += std::ssize(response.tokens) - way.had;
  if (response.finish == FinishReason::unfinished) {
    session.begun(turn, std::move(response));
    return hold(turn);
  }
  const TurnText text = parse_turn(response.text, way.format, way.tools);
  under_way_.erase(turn);
  look_at_clients();  // before there is an answer: who has left does not get it
  session.sampled(turn, response, text);
  for (const Waiting& client : waiting_[turn]) client.answer->finish(client.index, response);
  tell_pipe(turn);
}

int64_t OpenSession::spent_up_to(std::optional<size_t> turn) const {
  int64_t tokens = 0;
  for (; turn; turn = session.turn(*turn).parent) {
    const auto spent = spent_.find(*turn);
    if (spent != spent_.end()) tokens += spent->second;
  }
  return tokens;
}

void OpenSession::give(size_t turn, const std::optional<Response>& begun) {
  UnderWay& way = under_way_.at(turn);
  way.held = false;
  way.had = begun ? std::ssize(begun->tokens) : 0;
}

bool OpenSession::may_rest() const {
  return !rests && !under_way_.empty() &&
         std::all_of(under_way_.begin(), under_way_.end(),
                     [](const auto& entry) { return entry.second.held; });
}

std::vector<size_t> OpenSession::begin_step() {
  spent_.clear();
  rests = after_stop = false;
  std::vector<size_t> held;
  for (const auto& [turn, way] : under_way_)
    if (way.held) held.push_back(turn);
  return held;
}

std::string OpenSession::record() {
  look_at_clients();
  PausedSession paused{.session = session.record(), .spent = spent_, .heard = heard_before_};
  for (const auto& [turn, way] : under_way_) paused.heard[turn] = way.heard.text;
  return paused_to_text(paused);
}

void OpenSession::fail_clients(const DoorError& error) const {
  for (const auto& [turn, clients] : waiting_)
    for (const Waiting& client : clients) client.answer->fail(error);
}

void OpenSession::tick(OpenAnswer::Clock::time_point now) {
  for (const auto& [turn, clients] : waiting_)
    for (const Waiting& client : clients) client.answer->tick(now);
  look_at_clients();
}

void OpenSession::look_at_clients() {
  for (auto& [turn, clients] : waiting_)
    std::erase_if(clients, [&, turn = turn](const Waiting& client) {
      if (client.answer->delivered())
        session.delivered(turn);
      else if (client.answer->lost())
        session.client_gone(turn);
      else
        return false;
      return true;
    });
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
}

SessionResult OpenSession::end(uint64_t number, SessionEnd end) {
  look_at_clients();
  fail_clients({.status = 400, .message = "the session has ended", .code = "session_ended"});
  if (posted && !end.reward) {
    end.reward = posted->reward;
    end.parts = posted->parts;
  }
  if (end.reason == EndReason::done && session.turns() == 0) end.reason = EndReason::no_request;
  if (end.reason == EndReason::done && at_limit) end.reason = EndReason::limit;
  session.end(end);
  return {.number = number,
          .end = *session.ended(),
          .samples = session.samples(),
          .turns = static_cast<int32_t>(session.turns()),
          .requests = session.requests()};
}

}  // namespace temper

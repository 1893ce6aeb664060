#include "src/agents/service/open_session.h"

#include <algorithm>

namespace temper {

OpenSession::OpenSession(const SessionSetup& setup, Session of, const PausedSession& paused, bool stopped)
    : session(std::move(of)), data_position(setup.data_position), sample(setup.sample), after_stop(stopped) {
  if (stopped) spent_ = paused.spent;
  for (const auto& [turn, text] : paused.heard) heard_[turn].text = text;
}

void OpenSession::expect(size_t turn, const TurnFormat& format, const Json& tools) {
  formats_.emplace(turn, format);
  tools_.emplace(turn, tools);
}

void OpenSession::add_client(size_t turn, std::shared_ptr<OpenAnswer> answer, int32_t index) {
  const SessionTurn& t = session.turn(turn);
  const auto heard = heard_.find(turn);
  if (t.finished)
    answer->finish(index, t.response);
  else if (heard != heard_.end())
    answer->grow(index, heard->second);
  waiting_[turn].push_back({std::move(answer), index});
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

void OpenSession::grow(size_t turn, const TurnGrowth& growth) {
  TurnGrowth& heard = heard_[turn];
  heard.tokens.insert(heard.tokens.end(), growth.tokens.begin(), growth.tokens.end());
  heard.logprobs.insert(heard.logprobs.end(), growth.logprobs.begin(), growth.logprobs.end());
  heard.text += growth.text;
  for (const Waiting& client : waiting_[turn]) client.answer->grow(client.index, growth);
}

void OpenSession::refuse(size_t turn, const std::string& why) {
  at_engine_.erase(turn);
  for (const Waiting& client : waiting_[turn]) client.answer->fail({.status = 400, .message = why});
  if (const auto answer = pipe_.extract(turn)) answer.mapped()({.refused = why});
}

void OpenSession::take(size_t turn, Response response) {
  spent_[turn] += std::ssize(response.tokens) - at_engine_.extract(turn).mapped();
  if (response.finish == FinishReason::unfinished) {
    session.begun(turn, std::move(response));
    return hold(turn);
  }
  heard_.erase(turn);
  const TurnText text = parse_turn(response.text, formats_[turn], tools_[turn]);
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

void OpenSession::begin_with(size_t turn, const Response& begun) {
  heard_[turn].tokens = begun.tokens;
  heard_[turn].logprobs = begun.logprobs;
}

void OpenSession::give(size_t turn, const std::optional<Response>& begun) {
  at_engine_[turn] = begun ? std::ssize(begun->tokens) : 0;
}

std::set<size_t> OpenSession::begin_step() {
  spent_.clear();
  rests = after_stop = false;
  return std::exchange(held_, {});
}

std::string OpenSession::record() const {
  PausedSession paused{.session = session.record(), .spent = spent_};
  for (const auto& [turn, heard] : heard_) paused.heard[turn] = heard.text;
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

/// Who has got what he asked for, and who has gone: a client that closes its connection right behind the last
/// byte may seem gone before the network knows that all was sent, so it is looked at twice.
void OpenSession::look_at_clients() {
  for (auto& [turn, clients] : waiting_)
    std::erase_if(clients, [&, turn = turn](Waiting& client) {
      if (client.answer->delivered()) {
        session.delivered(turn);
        return true;
      }
      const bool gone = client.answer->gone();
      if (!std::exchange(client.seemed_gone, gone) || !gone) return false;
      session.client_gone(turn);
      return true;
    });
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
}

SessionResult OpenSession::end(uint64_t number, SessionEnd end) {
  fail_clients({.status = 400, .message = "the session has ended", .code = "session_ended"});
  if (posted && !end.reward) {
    end.reward = posted->reward;
    end.parts = posted->parts;
  }
  if (end.reason == EndReason::done && session.turns() == 0) end.reason = EndReason::no_request;
  session.end(end);
  return {.number = number,
          .end = *session.ended(),
          .samples = session.samples(),
          .turns = static_cast<int32_t>(session.turns()),
          .requests = session.requests()};
}

}  // namespace temper

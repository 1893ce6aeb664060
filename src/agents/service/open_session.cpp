#include "src/agents/service/open_session.h"

#include <utility>

namespace temper {

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

void OpenSession::join(const TurnStart& start, const Waiting& client) {
  if (start.kind == TurnStart::Kind::answered)
    client.answer->finish(client.index, session.turn(start.turn).response);
  if (start.kind == TurnStart::Kind::join)
    for (const DeskNews::Grown& g : under_way.at(start.turn).heard)
      client.answer->grow(client.index, g.token, g.logprob, g.text);
  waiting[start.turn].push_back(client);
}

void OpenSession::look_at_clients() {
  for (auto& [turn, clients] : waiting)
    std::erase_if(clients, [&, turn = turn](const Waiting& client) {
      if (client.answer->delivered())
        session.delivered(turn);
      else if (client.answer->lost())
        session.client_gone(turn);
      else
        return false;
      return true;
    });
  std::erase_if(waiting, [](const auto& entry) { return entry.second.empty(); });
}

void OpenSession::grow(size_t turn, const DeskNews::Grown& grown) {
  under_way.at(turn).heard.push_back(grown);
  for (const Waiting& client : waiting[turn])
    client.answer->grow(client.index, grown.token, grown.logprob, grown.text);
}

void OpenSession::finish(size_t turn, const Response& response) {
  const UnderWay way = std::move(under_way.extract(turn).mapped());
  look_at_clients();  // before there is an answer: who has left does not get it
  session.sampled(turn, response, parse_turn(response.text, way.format, way.tools));
  for (const Waiting& client : waiting[turn]) client.answer->finish(client.index, response);
  tell_pipe(turn);
}

void OpenSession::refuse(size_t turn, const std::string& why) {
  session.withdraw(turn);
  under_way.erase(turn);
  for (const Waiting& client : waiting[turn]) client.answer->fail({.status = 400, .message = why});
  waiting.erase(turn);
  if (const auto answer = pipe.extract(turn)) answer.mapped()({.refused = why});
}

void OpenSession::tell_pipe(size_t turn) {
  const auto answer = pipe.extract(turn);
  if (!answer) return;
  const SessionTurn& t = session.turn(turn);
  said.push_back(t.answer);
  session.delivered(turn);
  answer.mapped()({.turn = {{"text", t.response.text},
                            {"tool_calls", t.answer.value("tool_calls", Json::array())},
                            {"finish", finish_reason_name(t.response.finish)}}});
}

}  // namespace temper

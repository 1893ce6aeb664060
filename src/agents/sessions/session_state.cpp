#include "src/agents/sessions/session_state.h"

#include <algorithm>
#include <utility>

#include "src/agents/sessions/canonical.h"
#include "src/agents/sessions/turn_key.h"

namespace temper {
namespace {

void check_last_message(const TurnAsk& ask) {
  CHECK(ask.prompt || (ask.messages.is_array() && !ask.messages.empty()), "a request without messages");
  if (ask.prompt || ask.messages.back()["role"] != "assistant") return;
  throw RequestError({.what = "the last message is the assistant's",
                      .where = "messages",
                      .why = "answers that a client begins are not supported",
                      .fix = "end the messages with one of another role"});
}

[[noreturn]] void refuse_limit(const char* of, int64_t limit) {
  throw Refusal(Refusal::Code::session_limit, {.what = "the session has reached a limit",
                                               .where = "session",
                                               .why = fmt::format("it had its {} {}", limit, of),
                                               .fix = "end the session"});
}

const char* field(const TurnAsk& ask) { return ask.prompt ? "prompt" : "messages"; }

}  // namespace

TurnStart Session::State::ask(const TurnAsk& ask) {
  if (end)
    throw Refusal(Refusal::Code::session_ended,
                  {.what = "the session has ended",
                   .where = "session",
                   .why = fmt::format("it ended as {}", end_reason_name(end->reason)),
                   .fix = "ask nothing more in it"});
  check_last_message(ask);
  const std::string digest = ask_digest(ask);
  if (const auto turn = asked_before(ask, digest)) return again(*turn);
  if (const auto turn = recorded(digest)) return claim(*turn);

  Placed placed = place(ask);
  check_prompt(ask, placed);
  KnownTurn& made = placed.turn;
  made.max_new_tokens = room(ask, std::ssize(placed.prompt));
  made.ask = digest;
  made.idempotency_key = ask.idempotency_key;
  made.stop = ask.stop;
  name(made, ask, placed.prompt);
  receive(made.turn.parent);
  const size_t turn = turns.add(std::move(made), ask, placed.depth);
  enter(turn);
  asked_beyond = asked_beyond || resumed;
  return engine_start(turn);
}

void Session::State::enter(size_t turn) {
  const KnownTurn& t = turns[turn];
  by_ask[t.ask].push_back(turn);
  int32_t& asked = repetitions[t.request];
  asked = std::max(asked, t.turn.repetition + 1);
}

std::optional<size_t> Session::State::asked_before(const TurnAsk& ask, const std::string& digest) const {
  const auto found = by_ask.find(digest);
  if (found == by_ask.end()) return std::nullopt;
  std::optional<size_t> marked;
  for (const size_t turn : found->second) {
    const KnownTurn& t = turns[turn];
    if (!t.live) continue;
    const bool keys = !ask.idempotency_key.empty() && !t.idempotency_key.empty();
    if (keys && ask.idempotency_key == t.idempotency_key) return turn;
    if (keys) continue;
    if (t.lost()) return turn;
    // Where nobody is known to have lost one: the first that waits, else the last.
    if (ask.retry && (!marked || turns[*marked].turn.received)) marked = turn;
  }
  return marked;
}

TurnStart Session::State::again(size_t turn) {
  ++turns.at(turn).clients;
  const bool there = turns[turn].turn.finished;
  return {.kind = there ? TurnStart::Kind::answered : TurnStart::Kind::join, .turn = turn};
}

std::optional<size_t> Session::State::recorded(const std::string& digest) const {
  const auto found = by_ask.find(digest);
  if (found == by_ask.end()) return std::nullopt;
  for (const size_t turn : found->second)
    if (!turns[turn].live) return turn;
  return std::nullopt;
}

TurnStart Session::State::claim(size_t turn) {
  turns.at(turn).live = true;
  receive(turns[turn].turn.parent);
  if (turns[turn].turn.finished) return again(turn);
  turns.at(turn).clients = 1;
  return engine_start(turn);
}

void Session::State::receive(std::optional<size_t> turn) {
  for (; turn && !turns[*turn].turn.received; turn = turns[*turn].turn.parent)
    turns.at(*turn).turn.received = turns.at(*turn).live = true;
}

std::optional<std::vector<int32_t>> Session::State::behind(const TurnAsk& ask,
                                                           const KnownTurns::Known& known) const {
  const SessionTurn& parent = turns[known.turn].turn;
  if (ask.prompt) {
    const int64_t before = parent.prompt_tokens + std::ssize(parent.response.tokens);
    return std::vector<int32_t>(ask.prompt->begin() + before, ask.prompt->end());
  }
  Json said = Json::array();
  for (size_t i = known.depth; i < ask.messages.size(); ++i) {
    if (ask.messages[i]["role"] == "assistant") return std::nullopt;
    said.push_back(ask.messages[i]);
  }
  const int32_t last = parent.response.tokens.back();
  const bool by_stop_id = parent.response.finish == FinishReason::stop &&
                          std::ranges::find(setup.stop_token_ids, last) != setup.stop_token_ids.end();
  return cut.behind(parent.answer, said, ask.tools, ask.arguments,
                    {.last_sampled = last, .by_stop_id = by_stop_id});
}

Session::State::Placed Session::State::place(const TurnAsk& ask) const {
  Placed made;
  made.turn.clients = 1;
  SessionTurn& turn = made.turn.turn;
  const auto known = turns.find(ask);
  auto more = known ? behind(ask, *known) : std::nullopt;
  if (more) {
    turn.parent = known->turn;
    turn.behind = *std::move(more);
    made.depth = known->depth;
    made.prompt = turns.ids(known->turn);
  } else {
    turn.behind = ask.prompt ? *ask.prompt : cut.whole(ask.messages, ask.tools, ask.arguments);
  }
  made.prompt.insert(made.prompt.end(), turn.behind.begin(), turn.behind.end());
  turn.prompt_tokens = std::ssize(made.prompt);
  return made;
}

void Session::State::check_prompt(const TurnAsk& ask, const Placed& placed) const {
  if (placed.prompt.empty())
    throw RequestError({.what = "the prompt is empty",
                        .where = field(ask),
                        .why = "it has no tokens",
                        .fix = "send at least one token"});
  for (const int32_t id : placed.turn.turn.behind)
    if (id < 0 || id >= setup.num_ids)
      throw RequestError({.what = "an id that the model lacks",
                          .where = field(ask),
                          .why = fmt::format("found {}, ids are 0 to {}", id, setup.num_ids - 1),
                          .fix = "send ids of this model's tokenizer"});
}

int64_t Session::State::room(const TurnAsk& ask, int64_t prompt_tokens) const {
  const SessionLimits& limits = setup.limits;
  const int64_t live = turns.live(), sampled = turns.sampled_tokens();
  if (limits.turns > 0 && live >= limits.turns) refuse_limit("turns", limits.turns);
  if (limits.session_tokens > 0 && sampled >= limits.session_tokens)
    refuse_limit("sampled tokens", limits.session_tokens);
  if (limits.context_tokens > 0 && prompt_tokens >= limits.context_tokens)
    throw Refusal(Refusal::Code::context_length,
                  {.what = "the prompt is too long",
                   .where = field(ask),
                   .why = fmt::format("it has {} tokens, and with the answer there can be {}", prompt_tokens,
                                      limits.context_tokens),
                   .fix = "send fewer or shorter messages"},
                  prompt_tokens + 1, limits.context_tokens);
  int64_t least = 0;
  const auto at_most = [&](int64_t tokens) { least = least == 0 ? tokens : std::min(least, tokens); };
  if (ask.max_new_tokens > 0) at_most(ask.max_new_tokens);
  if (limits.turn_tokens > 0) at_most(limits.turn_tokens);
  if (limits.session_tokens > 0) at_most(limits.session_tokens - sampled);
  if (limits.context_tokens > 0) at_most(limits.context_tokens - prompt_tokens);
  return least;
}

void Session::State::name(KnownTurn& t, const TurnAsk& ask, const std::vector<int32_t>& prompt) const {
  t.request = request_digest(prompt, ask);
  const auto earlier = repetitions.find(t.request);
  t.turn.repetition = earlier == repetitions.end() ? 0 : earlier->second;
  t.turn.trained = ask.trained;
  t.line = ask.trained && t.turn.repetition == 0 && prompt == setup.line_prompt;
  t.turn.seed = t.line ? setup.seed : turn_seed(setup.seed, t.request, t.turn.repetition);
  t.turn.key = turn_key(setup, t.request, t.turn.repetition);
}

TurnStart Session::State::engine_start(size_t turn) const {
  const KnownTurn& t = turns[turn];
  return {.kind = TurnStart::Kind::sample,
          .turn = turn,
          .prompt = turns.prompt(turn),
          .max_new_tokens = t.max_new_tokens,
          .seed = t.turn.seed,
          .stop = t.stop,
          .begun = t.begun};
}

}  // namespace temper

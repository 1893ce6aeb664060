#include "src/agents/sessions/known_turns.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "src/core/check.h"
#include "src/core/digest/hash.h"

namespace temper {
namespace {

/// Whether the calls of a message have the ids of those of an answer.
bool has_ids_of(const Json& answer, const Json& said) {
  const auto ours = answer.find("tool_calls"), theirs = said.find("tool_calls");
  if (ours == answer.end() || theirs == said.end()) return ours == answer.end() && theirs == said.end();
  return std::equal(ours->begin(), ours->end(), theirs->begin(), theirs->end(),
                    [](const Json& a, const Json& b) { return b.contains("id") && a["id"] == b["id"]; });
}

void append(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

bool KnownTurns::before(size_t a, size_t b) const {
  const auto place = [](const KnownTurn& t) { return std::tie(t.request, t.turn.repetition); };
  const KnownTurn &x = turns_[a], &y = turns_[b];
  return x.line != y.line ? x.line : place(x) < place(y);
}

std::optional<size_t> KnownTurns::first(const std::vector<size_t>& turns, const Json* said) const {
  if (turns.empty()) return std::nullopt;
  const auto other_ids = [&](size_t turn) { return said && !has_ids_of(turns_[turn].turn.answer, *said); };
  return *std::min_element(turns.begin(), turns.end(), [&](size_t a, size_t b) {
    const bool x = other_ids(a), y = other_ids(b);
    return x != y ? y : before(a, b);
  });
}

std::optional<KnownTurns::Known> KnownTurns::find(const TurnAsk& ask) const {
  if (ask.prompt) {
    const auto turn = first(paths_.deepest(*ask.prompt), nullptr);
    return turn ? std::optional(Known{*turn, 0}) : std::nullopt;
  }
  const size_t root = messages_.find_root(ask.tools, ask.arguments);
  if (root == MessageTree::kNone) return std::nullopt;
  const MessageTree::Found found = messages_.deepest(root, ask.messages);
  if (found.depth == 0) return std::nullopt;
  return Known{*first(found.turns, &ask.messages[found.depth - 1]), found.depth};
}

size_t KnownTurns::add(KnownTurn turn, const TurnAsk& ask, size_t depth) {
  const size_t number = turns_.size();
  if (!ask.prompt) {
    const auto parent = turn.turn.parent;
    size_t node = messages_.add_root(ask.tools, ask.arguments, number);
    if (parent) node = messages_.add(turns_[*parent].node, turns_[*parent].turn.answer, *parent);
    for (size_t i = depth; i < ask.messages.size(); ++i) node = messages_.add(node, ask.messages[i], number);
    turn.node = node;
  }
  turns_.push_back(std::move(turn));
  return number;
}

void KnownTurns::register_path(size_t turn) {
  Digest digest;
  int64_t length = 0;
  const auto read = [&](const std::vector<int32_t>& ids) {
    length += std::ssize(ids);
    digest.update(ids.data(), std::ssize(ids) * static_cast<int64_t>(sizeof(int32_t)));
  };
  for (const size_t t : path(turn)) read(turns_[t].turn.behind), read(turns_[t].turn.response.tokens);
  turns_[turn].path = digest.hex();
  paths_.add(turns_[turn].path, length, turn);
}

void KnownTurns::finish(size_t turn, Response response, Json answer) {
  KnownTurn& t = turns_[turn];
  t.begun.reset();
  t.turn.finished = true;
  t.turn.response = std::move(response);
  t.turn.answer = std::move(answer);
  if (t.node != MessageTree::kNone) messages_.add_answer(messages_.add(t.node, t.turn.answer, turn), turn);
  register_path(turn);
}

void KnownTurns::restore(KnownTurn turn) {
  turns_.push_back(std::move(turn));
  if (turns_.back().turn.finished) register_path(turns_.size() - 1);
}

int64_t KnownTurns::live() const { return std::ranges::count(turns_, true, &KnownTurn::live); }

int64_t KnownTurns::sampled_tokens() const {
  int64_t tokens = 0;
  for (const KnownTurn& t : turns_) tokens += t.live ? std::ssize(t.turn.response.tokens) : 0;
  return tokens;
}

std::vector<size_t> KnownTurns::path(size_t turn) const {
  std::vector<size_t> path{turn};
  while (const auto parent = turns_[path.back()].turn.parent) path.push_back(*parent);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<int32_t> KnownTurns::prompt(size_t turn) const {
  std::vector<int32_t> ids;
  if (const auto parent = turns_[turn].turn.parent) ids = this->ids(*parent);
  append(ids, turns_[turn].turn.behind);
  return ids;
}

std::vector<int32_t> KnownTurns::ids(size_t turn) const {
  std::vector<int32_t> ids;
  for (const size_t t : path(turn))
    append(ids, turns_[t].turn.behind), append(ids, turns_[t].turn.response.tokens);
  return ids;
}

size_t KnownTurns::first_with_its_ids(size_t turn) const {
  const SessionTurn& t = turns_[turn].turn;
  size_t first = turn;
  for (const size_t other : paths_.of(turns_[turn].path, t.prompt_tokens + std::ssize(t.response.tokens)))
    if (turns_[other].counts() && before(other, first)) first = other;
  return first;
}

}  // namespace temper

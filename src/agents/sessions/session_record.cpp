#include "src/agents/sessions/session_record.h"

#include <algorithm>
#include <utility>

#include "src/rl/routes.h"

namespace temper {
namespace {

constexpr size_t kNone = MessageTree::kNone;

Json index_json(size_t index) { return index == kNone ? Json() : Json(index); }

Json response_json(const Response& r) {
  Json made{{"tokens", r.tokens},     {"mask", r.mask}, {"logprobs", r.logprobs},
            {"versions", r.versions}, {"text", r.text}, {"finish", finish_reason_name(r.finish)}};
  if (!r.routes.empty()) append_member(made, "routes", routes_to_json(r.routes));
  return made;
}

Json turn_json(const KnownTurn& t) {
  const bool has = t.turn.finished || t.begun;
  return {{"parent", index_json(t.turn.parent.value_or(kNone))},
          {"behind", t.turn.behind},
          {"seed", t.turn.seed},
          {"repetition", t.turn.repetition},
          {"key", t.turn.key},
          {"trained", t.turn.trained},
          {"finished", t.turn.finished},
          {"counts", t.counts()},
          {"line", t.line},
          {"request", t.request},
          {"ask", t.ask},
          {"idempotency_key", t.idempotency_key},
          {"max_new_tokens", t.max_new_tokens},
          {"stop", t.stop},
          {"node", index_json(t.node)},
          {"response", has ? response_json(t.begun ? *t.begun : t.turn.response) : Json()},
          {"answer", t.turn.answer}};
}

Json node_json(const MessageTree::Node& node) {
  return {{"above", index_json(node.above)},
          {"turn", node.turn},
          {"message", node.message},
          {"answers", node.answers}};
}

Json end_json(const SessionEnd& end) {
  return {{"reason", end_reason_name(end.reason)},
          {"reward", end.reward ? Json(*end.reward) : Json()},
          {"parts", end.parts}};
}

[[noreturn]] void refuse(const std::string& why) {
  fail(Exit::data, {.what = "the record of a session cannot be read",
                    .where = "record of a session",
                    .why = why,
                    .fix = "use another checkpoint"});
}

void expect(bool holds, const char* words, size_t index) {
  if (!holds) refuse(fmt::format("{} (entry {})", words, index));
}

size_t index_in(const Json& json, size_t limit, const char* words) {
  const auto index = json.get<size_t>();
  expect(index < limit, words, index);
  return index;
}

Response read_response(const Json& json, size_t index) {
  Response r{.tokens = json.at("tokens"),
             .mask = json.at("mask"),
             .logprobs = json.at("logprobs"),
             .versions = json.at("versions"),
             .text = json.at("text")};
  const std::string finish = json.at("finish");
  r.finish = finish == "stop"     ? FinishReason::stop
             : finish == "length" ? FinishReason::length
                                  : FinishReason::unfinished;
  int64_t counted = 0;
  for (const auto& [version, count] : r.versions) counted += count;
  expect(r.mask.size() == r.tokens.size() && r.logprobs.size() == r.tokens.size() &&
             counted == std::ssize(r.tokens) && (counted == 0 || !r.versions.empty()),
         "tokens, mask, log-probs and versions have different lengths", index);
  return r;
}

void read_routes(const Json& json, int64_t rows, Routes& routes, size_t index) {
  const auto found = json.find("routes");
  if (found == json.end()) return;
  const std::string defect = routes_from_json(*found, {}, rows, routes);
  expect(defect.empty(), defect.c_str(), index);
}

bool is_text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string();
}

bool is_call(const Json& call) {
  if (!call.is_object() || (call.contains("id") && !is_text(call, "id"))) return false;
  const auto function = call.find("function");
  return function != call.end() && function->is_object() && is_text(*function, "name") &&
         function->contains("arguments");
}

bool is_message(const Json& message) {
  if (!message.is_object() || !is_text(message, "role") || !is_text(message, "content")) return false;
  for (const char* name : {"reasoning_content", "tool_call_id", "name"})
    if (message.contains(name) && !is_text(message, name)) return false;
  const auto calls = message.find("tool_calls");
  return calls == message.end() || (calls->is_array() && std::all_of(calls->begin(), calls->end(), is_call));
}

KnownTurn read_turn(const Json& json, const KnownTurns& earlier, size_t nodes, bool ended) {
  const size_t index = earlier.size();
  KnownTurn t{.line = json.at("line"),
              .request = json.at("request"),
              .ask = json.at("ask"),
              .idempotency_key = json.at("idempotency_key"),
              .max_new_tokens = json.at("max_new_tokens"),
              .stop = json.at("stop"),
              .live = ended};
  SessionTurn& turn = t.turn;
  turn.behind = json.at("behind").get<std::vector<int32_t>>();
  turn.seed = json.at("seed");
  turn.repetition = json.at("repetition");
  turn.key = json.at("key");
  turn.trained = json.at("trained");
  turn.finished = json.at("finished");
  turn.received = ended && json.at("counts").get<bool>();
  turn.answer = json.at("answer");
  int64_t before = 0;
  if (const Json& parent = json.at("parent"); !parent.is_null()) {
    turn.parent = index_in(parent, index, "a turn goes on from a later one");
    const SessionTurn& above = earlier[*turn.parent].turn;
    expect(above.finished && (!turn.received || above.received), "a turn goes on from one without an answer",
           index);
    before = above.prompt_tokens + std::ssize(above.response.tokens);
  }
  turn.prompt_tokens = before + std::ssize(turn.behind);
  expect(turn.prompt_tokens > 0, "a turn has no prompt", index);
  if (const Json& node = json.at("node"); !node.is_null())
    t.node = index_in(node, nodes, "a turn's message is missing");
  const Json& response = json.at("response");
  if (!response.is_null()) {
    Response r = read_response(response, index);
    const int64_t own = std::ssize(turn.behind) - (before == 0);
    read_routes(response, (turn.finished ? own : turn.prompt_tokens - 1) + std::ssize(r.tokens), r.routes,
                index);
    if (turn.finished)
      turn.response = std::move(r);
    else
      t.begun = std::move(r);
  }
  expect(!turn.finished || (!turn.response.tokens.empty() && is_message(turn.answer)), "a turn has no answer",
         index);
  return t;
}

void read_nodes(const Json& nodes, size_t turns, MessageTree& tree) {
  for (const Json& json : nodes) {
    const size_t index = tree.size();
    const Json &above = json.at("above"), &message = json.at("message");
    const size_t turn = index_in(json.at("turn"), turns, "a message is of no turn");
    size_t made = 0;
    if (above.is_null()) {
      made = tree.add_root(message.at("tools"), message.at("arguments"), turn);
    } else {
      expect(is_message(message), "a message has another form", index);
      made = tree.add(index_in(above, index, "a message stands below a later one"), message, turn);
    }
    expect(made == index, "a message is there twice", index);
    for (const Json& answer : json.at("answers"))
      tree.add_answer(index, index_in(answer, turns, "a message is the answer of no turn"));
  }
}

SessionEnd read_end(const Json& json) {
  const auto reason = std::ranges::find(kEndReasons, json.at("reason").get<std::string>());
  expect(reason != kEndReasons.end(), "it ended in an unknown way", 0);
  SessionEnd end{.reason = static_cast<EndReason>(reason - kEndReasons.begin()), .parts = json.at("parts")};
  if (!json.at("reward").is_null()) end.reward = json.at("reward").get<double>();
  return end;
}

}  // namespace

Json session_record(const KnownTurns& turns, const std::optional<SessionEnd>& end) {
  Json nodes = Json::array(), all = Json::array();
  for (size_t i = 0; i < turns.messages().size(); ++i) nodes.push_back(node_json(turns.messages().node(i)));
  for (size_t i = 0; i < turns.size(); ++i) all.push_back(turn_json(turns[i]));
  return {{"messages", std::move(nodes)}, {"turns", std::move(all)}, {"end", end ? end_json(*end) : Json()}};
}

void read_session_record(const Json& record, KnownTurns& turns, std::optional<SessionEnd>& end) try {
  if (!record.at("end").is_null()) end = read_end(record.at("end"));
  const Json &nodes = record.at("messages"), &all = record.at("turns");
  for (const Json& turn : all) turns.restore(read_turn(turn, turns, nodes.size(), end.has_value()));
  read_nodes(nodes, all.size(), turns.restored_messages());
} catch (const Json::exception& e) {
  refuse(e.what());
}

}  // namespace temper

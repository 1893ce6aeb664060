#pragma once
// Anthropic's messages: their requests in the form of chat completions, and turns in theirs. Pure functions;
// a door adds ids, counts and errors.

#include <cstdint>
#include <string>
#include <vector>

#include "src/agents/turns/turn_text.h"
#include "src/core/json.h"

namespace temper::anthropic {

/// {"messages": as normal_messages makes them, "tools"?, "tool_choice"?, "stop"?, and as they came model,
/// max_tokens, stream, temperature, top_p, top_k}.
///   system      blocks become one system message; one that begins with x-anthropic-billing-header, which
///               changes with every request, is dropped. A system message among the others goes, behind a
///               blank line, to the message before it, or where that is the assistant's, to those after it
///   blocks      tool_result: tool messages in their order, the rest of the message one of the user behind
///               them; thinking: reasoning_content (redacted_thinking is dropped); tool_use: calls
///   tools       input_schema is parameters; a tool without one is the provider's own and dropped
/// Roles but assistant and system are the user's. Fields that have no counterpart are left out, wherever they
/// stand. RequestError with the field's name in this form.
Json chat_request(const Json& body);

/// Blocks of thinking, text and tool_use; `call_ids` has an id for each call.
Json content_blocks(const TurnText& turn, const std::vector<std::string>& call_ids);

/// How a turn ended. `reason`: finish_reason of chat completions; a stop string has its text in `sequence`.
struct Ending {
  std::string reason;
  Json sequence = nullptr;
};
/// Tokens of the prompt, those of them whose cache was there already, and of the turn.
struct Usage {
  int64_t prompt = 0, cached = 0, turn = 0;
};

Json answer(const std::string& id, const std::string& model, Json blocks, const Ending& ending,
            const Usage& usage);
/// `type` as Anthropic names it: invalid_request_error, ...
Json error(const std::string& type, const std::string& message);

/// An event of a stream, which is written as `event: NAME` and `data: {...}`.
struct Event {
  std::string name;
  Json data;
};

/// The events of an answer, from the deltas of TurnStream.
class Events {
 public:
  std::vector<Event> begin(const std::string& id, const std::string& model, const Usage& usage);
  std::vector<Event> add(const TurnText& delta, const std::vector<std::string>& call_ids);
  std::vector<Event> end(const Ending& ending, const Usage& usage);

 private:
  enum class Block { none, thinking, text, call };

  void open(Block block, Json content, std::vector<Event>& events);
  void close(std::vector<Event>& events);
  void say(Block block, const std::string& said, std::vector<Event>& events);

  Block block_ = Block::none;  // the open one
  bool behind_call_ = false;
  int64_t blocks_ = 0;
};

}  // namespace temper::anthropic

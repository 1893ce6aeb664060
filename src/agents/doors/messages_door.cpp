#include "src/agents/doors/messages_door.h"

#include "src/agents/doors/error_types.h"
#include "src/agents/doors/openai.h"
#include "src/agents/turns/anthropic.h"
#include "src/agents/turns/messages.h"

namespace temper {
namespace {

Json error_of(const DoorError& e) {
  const bool too_long = e.code == "context_length_exceeded";
  return anthropic::error(
      error_types(e.status).anthropic,
      too_long ? fmt::format("prompt is too long: {} tokens > {} maximum", e.tokens, e.limit) : e.message);
}

/// A stop string is left out of the text, so what ended a turn that did not reach its length is not known
/// beyond its finish.
anthropic::Ending ending_of(const DoorChoice& choice) { return {.reason = finish_of(choice)}; }

anthropic::Usage tokens_of(const DoorAnswer& a) {
  return {a.prompt_tokens, a.cached_tokens, a.completion_tokens()};
}

class MessagesStream : public DoorStream {
 public:
  MessagesStream(const DoorRequest& request, const DoorAnswer& head) : model_(request.model), head_(head) {}

  std::string begin() override { return text_of(events_.begin(head_.id, model_, tokens_of(head_))); }
  std::string delta(const DoorDelta& d) override { return text_of(events_.add(d.said, d.call_ids)); }
  std::string end_choice(int32_t, const DoorChoice& choice) override {
    ending_ = ending_of(choice);
    return "";
  }
  std::string end(const DoorAnswer& answer) override {
    return text_of(events_.end(ending_, tokens_of(answer)));
  }
  std::string keep_alive() override { return "event: ping\ndata: {\"type\": \"ping\"}\n\n"; }
  std::string error(const DoorError& error) override {
    return "event: error\n" + data_event(error_of(error));
  }

 private:
  static std::string text_of(const std::vector<anthropic::Event>& events) {
    std::string text;
    for (const anthropic::Event& event : events)
      text += "event: " + event.name + "\n" + data_event(event.data);
    return text;
  }

  const std::string model_;
  const DoorAnswer head_;
  anthropic::Events events_;
  anthropic::Ending ending_;
};

}  // namespace

DoorRequest MessagesDoor::read(const Json& body, const DoorRules& rules) const {
  const Json chat = anthropic::chat_request(body);
  const Fields fields(chat, rules.ignore);
  DoorRequest r;
  read_common(fields, r);
  r.messages = chat.at("messages");
  if (r.messages.back()["role"] == "assistant")
    fields.refuse("messages", "the last message is the assistant's: an answer is not continued");
  if (fields.at("tool_choice") != "none") r.tools = fields.at("tools");
  return r;
}

std::string MessagesDoor::answer(const DoorRequest& request, const DoorAnswer& a) const {
  const DoorChoice& choice = a.choices.front();
  return dump_json_line(anthropic::answer(a.id, request.model,
                                          anthropic::content_blocks(choice.said, choice.call_ids),
                                          ending_of(choice), tokens_of(a)));
}

std::unique_ptr<DoorStream> MessagesDoor::stream(const DoorRequest& request, const DoorAnswer& head) const {
  return std::make_unique<MessagesStream>(request, head);
}

std::string MessagesDoor::error(const DoorError& error) const { return dump_json_line(error_of(error)); }

}  // namespace temper

// Bodies at the doors: the first byte chooses chat, messages, completions or tokens. What is read stays
// within its bounds, and is answered and streamed as JSON of one line each.

#include "src/agents/doors/chat_door.h"
#include "src/agents/doors/completions_door.h"
#include "src/agents/doors/messages_door.h"
#include "src/agents/doors/tokens_door.h"
#include "src/agents/server/http_exchange.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load("tests/golden/tokenizer/minimind");
  return loaded;
}

const Door& door(unsigned char which) {
  static const ChatDoor chat(tokenizer());
  static const MessagesDoor messages;
  static const CompletionsDoor completions(tokenizer());
  static const TokensDoor tokens;
  static const Door* const all[] = {&chat, &messages, &completions, &tokens};
  return *all[which % 4];
}

DoorChoice choice_of(const DoorRequest& r) {
  const std::string text = "<think>\nwell\n</think>\n\nsaid \xff \"";
  DoorChoice choice;
  choice.response.text = text;
  choice.response.tokens = tokenizer().encode("said", /*add_special=*/false);
  choice.response.logprobs.assign(choice.response.tokens.size(), -0.5);
  choice.response.mask.assign(choice.response.tokens.size(), 1);
  choice.response.versions = {{1, static_cast<int32_t>(choice.response.tokens.size())}};
  choice.response.finish = FinishReason::stop;
  choice.said = parse_turn(text, TurnFormat{}, r.tools);
  if (!r.prompts.empty()) choice.prompt = {r.prompts[0].begin(), r.prompts[0].begin() + 1};
  for (size_t i = 0; i < choice.said.calls.size(); ++i) choice.call_ids.push_back(std::to_string(i));
  return choice;
}

void expect_events(const std::string& events) {
  for (size_t at = 0; (at = events.find("data: {", at)) != events.npos; ++at) {
    const size_t end = events.find("\n\n", at);
    require(end != events.npos, "an event without an end");
    parse_json(events.substr(at + 6, end - at - 6), "event");
  }
}

void expect_bounds(const DoorRequest& r) {
  require(r.n >= 1 && r.n <= 1024 && r.choices() >= 1 && r.choices() <= 1024, "answers without a bound");
  require(r.max_new_tokens >= 0, "a limit that is none");
  require(r.messages.is_array() != !r.prompts.empty(), "neither messages nor prompts, or both");
  require(r.messages.is_null() || r.messages.back()["role"] != "assistant", "an answer that goes on");
  require(r.tools.is_null() || r.tools.is_array(), "tools that are no list");
  for (const std::vector<int32_t>& prompt : r.prompts) {
    require(!prompt.empty(), "a prompt of nothing");
    for (const int32_t id : prompt) require(id >= 0, "an id that is none");
  }
  for (const std::string& stop : r.stop) require(!stop.empty(), "a stop that ends everything");
}

}  // namespace

void fuzz(std::string_view input) {
  if (input.empty()) return;
  const Door& it = door(static_cast<unsigned char>(input[0]));
  takes([&] {
    const Json body = parse_json(std::string(input.substr(1)), "body", {.depth = 32, .bytes = 1 << 20});
    const DoorRequest r = it.read(body, {});
    expect_bounds(r);
    DoorAnswer head{.id = "a", .created = 1, .prompt = {1, 2}, .choices = {}};
    const auto stream = r.stream ? it.stream(r, head) : nullptr;
    if (stream) {
      DoorDelta delta{.index = 0, .text = "d", .tokens = {7}, .logprobs = {-1}};
      delta.said.content = "d";
      expect_events(stream->begin() + stream->delta(delta) + stream->keep_alive() +
                    stream->end_choice(0, choice_of(r)) + stream->end(head) +
                    stream->error({.message = "m"}));
    }
    head.choices.assign(1, choice_of(r));
    const std::string answer = it.answer(r, head);
    require(answer.find('\n') == answer.npos, "an answer of several lines");
    parse_json(answer, "answer");
  });
}

}  // namespace temper

#include "src/agents/service/open_answer.h"

#include "src/agents/service/doors.h"
#include "src/core/digest/hash.h"

namespace temper {
namespace {

constexpr std::chrono::seconds kSilence{10};  // of a stream, before it says that it lives

std::string call_id_of(const std::string& answer_id, int32_t index, size_t number) {
  const std::string key = fmt::format("{} {} {}", answer_id, index, number);
  return "call_" + digest_hex(key.data(), std::ssize(key)).substr(0, 24);
}

}  // namespace

void reply_error(HttpExchange& exchange, const Door& door, const DoorError& error) {
  exchange.reply(error.status, door.error(error), error_headers(error));
}

OpenAnswer::OpenAnswer(std::shared_ptr<HttpExchange> exchange, const Door& door, DoorRequest request,
                       DoorAnswer head, const TurnFormat& format, CallId call_id)
    : exchange_(std::move(exchange)),
      door_(door),
      request_(std::move(request)),
      answer_(std::move(head)),
      format_(format),
      call_id_(call_id ? std::move(call_id)
                       : [id = answer_.id](int32_t index,
                                           size_t number) { return call_id_of(id, index, number); }),
      left_(request_.choices()) {
  answer_.choices.resize(static_cast<size_t>(left_));
  for (int32_t i = 0; i < left_; ++i) choices_.push_back({TurnStream(format_, request_.tools)});
}

void OpenAnswer::begin() {
  if (stream_) return;
  stream_ = door_.stream(request_, answer_);
  exchange_->begin();
  exchange_->send(stream_->begin());
}

DoorDelta OpenAnswer::delta_of(int32_t index, TurnText said) {
  DoorDelta delta{.index = index, .said = std::move(said)};
  size_t& calls = choices_[static_cast<size_t>(index)].calls;
  for (size_t i = 0; i < delta.said.calls.size(); ++i) delta.call_ids.push_back(call_id_(index, calls++));
  return delta;
}

void OpenAnswer::send(const DoorDelta& delta) {
  const TurnText& said = delta.said;
  if (delta.tokens.empty() && said.content.empty() && said.reasoning.empty() && said.calls.empty()) return;
  std::string events = stream_->delta(delta);
  if (events.empty()) return;
  exchange_->send(std::move(events));
  last_ = Clock::now();
}

void OpenAnswer::grow(int32_t index, const TurnGrowth& growth) {
  Choice& open = choices_[static_cast<size_t>(index)];
  // The choices of a prompt share it.
  if (!std::exchange(open.grew, true) && index % request_.n == 0) answer_.cached_tokens += growth.found;
  if (!request_.stream) return;
  begin();
  open.fed += growth.text.size();
  DoorDelta delta = delta_of(index, open.said.feed(growth.text));
  delta.text = growth.text;
  delta.tokens = growth.tokens;
  delta.logprobs = growth.logprobs;
  send(delta);
}

void OpenAnswer::finish(int32_t index, Response response) {
  Choice& open = choices_[static_cast<size_t>(index)];
  if (finished() || std::exchange(open.over, true)) return;
  DoorChoice& choice = answer_.choices[static_cast<size_t>(index)];
  choice.said = parse_turn(response.text, format_, request_.tools);
  for (size_t i = 0; i < choice.said.calls.size(); ++i) choice.call_ids.push_back(call_id_(index, i));
  choice.response = std::move(response);
  --left_;
  if (request_.stream) {
    begin();
    // A client that came late has heard nothing so far.
    if (open.fed < choice.response.text.size())
      send(delta_of(index, open.said.feed(std::string_view(choice.response.text).substr(open.fed))));
    send(delta_of(index, open.said.end()));
    exchange_->send(stream_->end_choice(index, choice));
  }
  if (left_ > 0) return;
  if (!request_.stream) return exchange_->reply(200, door_.answer(request_, answer_));
  exchange_->send(stream_->end(answer_));
  exchange_->end();
}

void OpenAnswer::score(int32_t first, const std::vector<int32_t>& prompt, std::vector<PromptLogprob> scores) {
  for (int32_t i = first; i < first + request_.n; ++i) {
    DoorChoice& choice = answer_.choices[static_cast<size_t>(i)];
    choice.prompt = prompt;
    choice.prompt_logprobs = scores;
  }
}

void OpenAnswer::fail(const DoorError& error) {
  if (finished()) return;
  left_ = 0;
  if (!stream_) return reply_error(*exchange_, door_, error);
  exchange_->send(stream_->error(error));
  exchange_->end();
}

void OpenAnswer::tick(Clock::time_point now) {
  if (!request_.stream || finished() || now - last_ < kSilence) return;
  begin();
  exchange_->send(stream_->keep_alive());
  last_ = now;
}

}  // namespace temper

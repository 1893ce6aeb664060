#include "src/agents/service/serve_service.h"

namespace temper {
namespace {

DoorError stopping() { return {.status = 503, .message = "the server stops", .retry_after_seconds = 1}; }

}  // namespace

ServeService::ServeService(const Options& options, const Tokenizer& tokenizer, const ChatTemplate* chat,
                           EngineDesk& desk)
    : o_(options), doors_(tokenizer) {
  if (chat) cut_.emplace(tokenizer, *chat, Json::object());
  lanes_.emplace(desk, [&](size_t lane) {
    return std::make_unique<FreeLane>(
        FreeLane::Parts{o_.rules, doors_, tokenizer, cut_ ? &*cut_ : nullptr, desk, lane});
  });
  HttpOptions http = o_.http;
  http.refusal_body = [this](int status, const std::string& why, const std::string& path) {
    return refusal_of(doors_, path, {.status = status, .message = why}).body;
  };
  server_.emplace(
      http, [this](const HttpHead& head, bool& known) { return allow(head, known); },
      [this](std::shared_ptr<HttpExchange> exchange) { receive(std::move(exchange)); });
}

std::optional<HttpRefusal> ServeService::allow(const HttpHead& head, bool& known) const {
  known = o_.key.empty() || same_key(head.key, o_.key);
  std::optional<DoorError> error = head_error(head, [&](const Routed&) { return known; });
  if (!error && closed_) error = stopping();
  return error ? std::optional(refusal_of(doors_, head.path, *error)) : std::nullopt;
}

void ServeService::receive(std::shared_ptr<HttpExchange> exchange) {
  lanes_->post(next_++ % lanes_->size(),
               [exchange = std::move(exchange)](FreeLane& lane) { lane.receive(exchange); });
}

void ServeService::close() {
  closed_ = true;
  server_->close();
}

void ServeService::end_answers() {
  for (size_t i = 0; i < lanes_->size(); ++i)
    lanes_->post(i, [](FreeLane& lane) { lane.end_answers(stopping()); });
}

int64_t ServeService::open() const {
  int64_t open = 0;
  for (size_t i = 0; i < lanes_->size(); ++i) open += (*lanes_)[i].open();
  return open;
}

}  // namespace temper

#include "src/agents/service/serve_service.h"

namespace temper {
namespace {

constexpr double kTickSeconds = 0.1;

}  // namespace

ServeService::ServeService(const Options& options, const Tokenizer& tokenizer, const ChatTemplate* chat,
                           EngineDesk& desk)
    : o_(options), doors_(tokenizer) {
  if (chat) cut_.emplace(tokenizer, *chat, Json::object());
  for (size_t i = 0; i < desk.lanes(); ++i) {
    lanes_.push_back(std::make_unique<FreeLane>(
        FreeLane::Parts{o_.rules, doors_, tokenizer, cut_ ? &*cut_ : nullptr, desk, i}));
    threads_.push_back(
        std::make_unique<JobThread>([lane = lanes_.back().get()] { lane->tick(); }, kTickSeconds));
  }
  desk.listen([this](size_t lane, DeskNews news) {
    threads_[lane]->post([to = lanes_[lane].get(), news = std::make_shared<DeskNews>(std::move(news))] {
      to->hear(std::move(*news));
    });
  });
  HttpOptions http = o_.http;
  http.refusal_body = [this](int status, const std::string& why, const std::string& path) {
    const std::optional<Routed> routed = route_of(path);
    return doors_.at(routed ? routed->route : Route::chat).error({.status = status, .message = why});
  };
  server_ = std::make_unique<HttpServer>(
      http, [this](const HttpHead& head, bool& known) { return allow(head, known); },
      [this](std::shared_ptr<HttpExchange> exchange) { receive(std::move(exchange)); });
}

ServeService::~ServeService() {
  server_.reset();
  threads_.clear();
}

std::optional<HttpRefusal> ServeService::allow(const HttpHead& head, bool& known) const {
  known = o_.key.empty() || same_key(head.key, o_.key);
  std::optional<DoorError> error = head_error(head, [&](const Routed&) { return known; });
  if (!error && closed_) error = DoorError{.status = 503, .message = "the server stops"};
  if (!error) return std::nullopt;
  const std::optional<Routed> routed = route_of(head.path);
  HttpHeaders headers;
  if (error->status == 503)
    headers.emplace_back("Retry-After", "1");
  else
    headers.emplace_back("x-should-retry", "false");
  return HttpRefusal{.status = error->status,
                     .body = doors_.at(routed ? routed->route : Route::chat).error(*error),
                     .headers = std::move(headers)};
}

void ServeService::receive(std::shared_ptr<HttpExchange> exchange) {
  const size_t lane = next_++ % lanes_.size();
  threads_[lane]->post([to = lanes_[lane].get(), exchange = std::move(exchange)] { to->receive(exchange); });
}

void ServeService::close() {
  closed_ = true;
  server_->close();
}

int64_t ServeService::open() const {
  int64_t open = 0;
  for (const auto& lane : lanes_) open += lane->open();
  return open;
}

}  // namespace temper

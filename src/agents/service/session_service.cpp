#include "src/agents/service/session_service.h"

#include <sys/random.h>

#include "src/core/digest/hash.h"

namespace temper {
namespace {

/// 128 random bits.
std::string random_key() {
  std::array<unsigned char, 16> bits{};
  const ssize_t got = ::getrandom(bits.data(), bits.size(), 0);
  CHECK(got == std::ssize(bits), "the system gave {} of 16 random bytes", got);
  std::string key;
  for (const unsigned char byte : bits) key += fmt::format("{:02x}", byte);
  return key;
}

/// Keys are found by a digest, so that the time of a search says nothing of them.
std::string digest_of_key(const std::string& key) { return digest_hex(key.data(), std::ssize(key)); }

}  // namespace

SessionService::SessionService(const Options& options, const Tokenizer& tokenizer, const ChatTemplate& chat,
                               EngineDesk& desk)
    : o_(options), doors_(tokenizer), cut_(tokenizer, chat, o_.chat_arguments) {
  lanes_.emplace(desk, [&](size_t lane) {
    return std::make_unique<SessionLane>(SessionLane::Parts{o_.rules, doors_, cut_, desk, results_, lane});
  });
  HttpOptions http = o_.http;
  http.refusal_body = [this](int status, const std::string& why, const std::string& path) {
    return refusal_of(doors_, path, {.status = status, .message = why}).body;
  };
  server_.emplace(
      http, [this](const HttpHead& head, bool& known) { return allow(head, known); },
      [this](std::shared_ptr<HttpExchange> exchange) { receive(std::move(exchange)); });
}

SessionAccess SessionService::open(const SessionSetup& setup, const std::string& record, bool after_stop) {
  const PausedSession paused = record.empty() ? PausedSession{} : paused_from_text(record);
  // A job is copied, and a session cannot be.
  const auto session = record.empty() ? std::make_shared<Session>(setup, cut_)
                                      : std::make_shared<Session>(setup, cut_, paused.session);
  SessionAccess access;
  access.key = random_key();
  access.reward_key = random_key();
  {
    const std::lock_guard lock(mutex_);
    access.number = next_++;
    const std::array<std::string, 2> digests{digest_of_key(access.key), digest_of_key(access.reward_key)};
    keys_[digests[0]] = {access.number, false};
    keys_[digests[1]] = {access.number, true};
    keys_of_[access.number] = digests;
  }
  access.anthropic_base_url = server_->url();
  access.base_url = access.anthropic_base_url + "/v1";
  lanes_->post(lane_of(access.number),
               [number = access.number, setup, session, paused, after_stop](SessionLane& lane) {
                 lane.open(number, setup, std::move(*session), paused, after_stop);
               });
  return access;
}

void SessionService::ask(uint64_t number, Json messages, std::function<void(const PipeAnswer&)> answer) {
  lanes_->post(lane_of(number), [number, messages = std::move(messages), answer = std::move(answer)](
                                    SessionLane& lane) { lane.ask(number, messages, answer); });
}

void SessionService::begin_step(int64_t tokens) {
  for (size_t lane = 0; lane < lanes_->size(); ++lane)
    lanes_->post(lane, [tokens](SessionLane& to) { to.begin_step(tokens); });
}

void SessionService::rest(uint64_t number) {
  lanes_->post(lane_of(number), [number](SessionLane& lane) { lane.rest(number); });
}

/// False: it has ended.
bool SessionService::forget_keys(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto digests = keys_of_.extract(number);
  if (!digests) return false;
  for (const std::string& digest : digests.mapped()) keys_.erase(digest);
  return true;
}

void SessionService::suspend(uint64_t number) {
  if (forget_keys(number))
    lanes_->post(lane_of(number), [number](SessionLane& lane) { lane.suspend(number); });
}

void SessionService::end(uint64_t number, SessionEnd end) {
  if (!forget_keys(number)) return;
  lanes_->post(lane_of(number), [number, end = std::move(end)](SessionLane& lane) { lane.end(number, end); });
}

std::optional<SessionService::Key> SessionService::find_key(const std::string& key) const {
  const std::string digest = digest_of_key(key);
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(digest);
  return found == keys_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<HttpRefusal> SessionService::allow(const HttpHead& head, bool& known) const {
  const std::optional<Key> key = find_key(head.key);
  known = key.has_value();
  const std::optional<DoorError> error = head_error(head, [&](const Routed& routed) {
    const bool names_another =
        !routed.session.empty() && key && routed.session != std::to_string(key->number);
    return key && !names_another && key->rewards == (routed.route == Route::reward);
  });
  return error ? std::optional(refusal_of(doors_, head.path, *error)) : std::nullopt;
}

void SessionService::receive(std::shared_ptr<HttpExchange> exchange) {
  const Route route = route_of(exchange->request().path)->route;
  if (route == Route::health) return exchange->reply(200, "{\"status\":\"ok\"}");
  const std::optional<Key> key = find_key(exchange->request().key);
  // Where the session ended while the body came, its lane says so.
  const uint64_t number = key ? key->number : UINT64_MAX;
  lanes_->post(lane_of(number), [exchange = std::move(exchange), number, route](SessionLane& lane) {
    route == Route::reward ? lane.receive_reward(number, exchange) : lane.receive(number, exchange);
  });
}

}  // namespace temper

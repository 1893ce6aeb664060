#include "src/agents/server/incoming.h"

#include <spdlog/fmt/fmt.h>

namespace temper {
namespace {

/// A refused body is read up to this many times the longest one that is legal; then its connection is closed.
constexpr int64_t kPatience = 4;

}  // namespace

bool Incoming::take_head(CheckedHead head, const HttpAllow& allow) {
  headed_ = true;
  bool known = false;
  static_cast<HttpHead&>(request_) = std::move(head.head);
  if (head.status != 0) {
    // Nobody can say where such a request ends.
    refuse(head.status, head.fault);
    at_once_ = true;
    return false;
  }
  refusal_ = allow(request_, known);
  const int64_t length = request_.content_length;
  const auto type = request_.headers.find("content-type");
  if (!refusal_ && request_.method == "POST" &&
      (type == request_.headers.end() || !is_json_type(type->second)))
    refuse(415, "a POST needs the header Content-Type: application/json");
  if (!refusal_ && length > options_.max_body_bytes)
    refuse(413, fmt::format("the body has {} bytes, at most {} are taken", length, options_.max_body_bytes));
  at_once_ = refusal_ && length != 0 && (head.expects_continue || far_too_long(length));
  return known;
}

bool Incoming::take_body(const char* bytes, size_t size) {
  received_ += static_cast<int64_t>(size);
  if (!refusal_ && received_ > options_.max_body_bytes)
    refuse(413, fmt::format("the body has more than the {} bytes that are taken", options_.max_body_bytes));
  if (!refusal_ && !room_.take(static_cast<int64_t>(size))) {
    refuse(503, "the server holds as many bodies as it has memory for");
    refusal_->headers = {{"Retry-After", "1"}};
  }
  if (!refusal_) request_.body.append(bytes, size);
  return !far_too_long(received_);
}

bool Incoming::far_too_long(int64_t bytes) const { return bytes / kPatience > options_.max_body_bytes; }

HttpRefusal Incoming::refusal(int status, const std::string& why) const {
  return {.status = status, .body = options_.refusal_body(status, why, request_.path)};
}

void Incoming::refuse(int status, const std::string& why) {
  refusal_ = refusal(status, why);
  std::string().swap(request_.body);
  room_.give_back();
}

const std::shared_ptr<HttpCall>& Incoming::make_call() {
  call_ = std::make_shared<HttpCall>(std::move(request_), std::move(room_), options_.max_unsent_bytes);
  return call_;
}

}  // namespace temper

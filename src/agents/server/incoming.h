#pragma once
// A request while it comes in.

#include <memory>
#include <optional>
#include <string>

#include "src/agents/server/body_room.h"
#include "src/agents/server/http_call.h"
#include "src/agents/server/http_server.h"
#include "src/agents/server/request_head.h"

namespace temper {

/// Head, then body, piece by piece; all on the network's thread. The body of a refused request is read and
/// thrown away, so that its client comes to read the refusal; not where it waits for a word before it sends,
/// and not much of one that is far too long.
class Incoming {
 public:
  Incoming(const HttpOptions& options, BodyRoom room, std::string target)
      : options_(options), room_(std::move(room)), target_(std::move(target)) {}

  const std::string& target() const { return target_; }
  bool headed() const { return headed_; }
  /// Asks whether it may go on. Returns whether a key was shown that holds.
  bool take_head(CheckedHead head, const HttpAllow& allow);
  /// False: the connection is to be closed at once.
  bool take_body(const char* bytes, size_t size);

  /// What it gets instead of an answer.
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }
  /// It is refused before its body, and the connection ends with it.
  bool refused_at_once() const { return at_once_; }
  HttpRefusal refusal(int status, const std::string& why) const;

  /// The call that it has become, once it is whole.
  const std::shared_ptr<HttpCall>& call() const { return call_; }
  const std::shared_ptr<HttpCall>& make_call();

 private:
  void refuse(int status, const std::string& why);
  bool far_too_long(int64_t bytes) const;

  const HttpOptions& options_;
  BodyRoom room_;
  std::string target_;
  bool headed_ = false, at_once_ = false;
  HttpRequest request_;
  int64_t received_ = 0;
  std::optional<HttpRefusal> refusal_;
  std::shared_ptr<HttpCall> call_;
};

}  // namespace temper

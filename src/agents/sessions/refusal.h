#pragma once
// A request that a session cannot serve, with a code that clients look for. A door answers 400.

#include <cstdint>
#include <string_view>
#include <utility>

#include "src/agents/turns/request_error.h"

namespace temper {

/// context_length: the prompt has `found` tokens with the one to be sampled, of `limit`. session_limit: a
/// limit of the session is reached. session_ended: it is over.
class Refusal : public RequestError {
 public:
  enum class Code { context_length, session_limit, session_ended };

  Refusal(Code code, Problem problem, int64_t tokens = 0, int64_t most = 0)
      : RequestError(std::move(problem)), found(tokens), limit(most), code_(code) {}

  std::string_view code() const {
    return code_ == Code::context_length  ? "context_length_exceeded"
           : code_ == Code::session_limit ? "session_limit"
                                          : "session_ended";
  }
  bool context_length() const { return code_ == Code::context_length; }
  bool session_limit() const { return code_ == Code::session_limit; }

  const int64_t found, limit;

 private:
  Code code_;
};

}  // namespace temper

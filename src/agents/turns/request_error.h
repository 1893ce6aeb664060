#pragma once
// What a client asked for and cannot have. A door answers 400 with these words.

#include <string>

#include "src/core/check.h"

namespace temper {

/// `where` names the field ("messages[2].content[0].type"), which OpenAI's form calls param.
class RequestError : public Error {
 public:
  explicit RequestError(Problem problem) : Error(Exit::data, std::move(problem)) {}

  const std::string& param() const { return problem().where; }
  /// In one line: "what: why".
  std::string message() const { return problem().what + ": " + problem().why; }
};

}  // namespace temper

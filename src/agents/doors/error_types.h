#pragma once
// How the doors call errors, by status.

namespace temper {

/// The `type` of an error in the two protocols.
struct ErrorTypes {
  const char* openai;
  const char* anthropic;
};
/// Those of a status from 400 on.
ErrorTypes error_types(int status);

}  // namespace temper

#pragma once
// What the doors of OpenAI's protocols share: fields of sampling, log-probs, errors, events.

#include "src/agents/doors/door.h"
#include "src/agents/doors/fields.h"

namespace temper {

/// temperature, top_p, ..., n, max_tokens, stop, stream, seed and the like, into `request`. RequestError for
/// what needs another distribution than the policy's. `least`: tokens that an answer may be limited to.
void read_common(const Fields& fields, DoorRequest& request, int64_t least = 1);

/// [{"token", "logprob", "bytes", "top_logprobs": []}, ...]
Json token_logprobs(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                    const std::vector<double>& logprobs);
/// [[version, tokens], ...]
Json weight_versions(const Response& response);
/// {"prompt_tokens", ...}
Json usage_of(const DoorAnswer& answer);
/// {"error": {message, type, param, code}}
Json openai_error(const DoorError& error);
/// "data: ...\n\n"
std::string data_event(const Json& data);

}  // namespace temper

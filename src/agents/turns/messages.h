#pragma once
// Messages of a dialogue in the one form that templates and comparisons use:
//   {"role": "system" | "user" | "assistant" | "tool", "content": text, "reasoning_content"?: text,
//    "tool_calls"?: [{"id"?, "type": "function", "function": {"name", "arguments": value}}],
//    "tool_call_id"?, "name"?}

#include "src/core/json.h"

namespace temper {

/// How deep arguments of calls may nest.
inline constexpr int kArgumentDepth = 32;

/// From OpenAI's form: developer is system, leading system messages are one (joined by a blank line), content
/// is a text (text parts joined by a newline, null is ""), `arguments` that are the text of a JSON value are
/// that value (no text: {}), `reasoning` is reasoning_content. Nulls, empty lists of calls and unknown keys
/// are left out; `name` stays with tools' messages. RequestError: no list, or an empty one, an unknown role,
/// parts that are no text, values of a wrong type, arguments that nest too deep.
Json normal_messages(const Json& messages);

/// Whether a message of a request is one that a session knows, both as normal_messages makes them: role, text
/// (an assistant's up to white space at both ends), tool_call_id, and for each call name and arguments as
/// JSON values (keys in any order, 1 = 1.0). Reasoning is compared, up to white space at both ends, where
/// `asked` has it; ids of calls and names of tools' messages are not.
bool same_message(const Json& known, const Json& asked);

/// As JSON values: the order of keys does not matter, numbers are equal by value.
bool same_value(const Json& a, const Json& b);

}  // namespace temper

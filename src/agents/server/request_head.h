#pragma once
// What a request's head has to be like before anything of it is believed.

#include <span>
#include <string>
#include <string_view>

#include "src/agents/server/http_exchange.h"

namespace temper {

struct HeaderLine {
  std::string_view name, value;
};

/// A sound head, or what is wrong with it. `fault` is a sentence of our own: it holds nothing from outside.
struct CheckedHead {
  HttpHead head = {};
  bool expects_continue = false;
  int status = 0;  // 0: sound
  std::string fault = {};
};

/// Refused are: methods and names of headers that are no words, targets that are no path, two or no Host, two
/// Content-Lengths, one beside chunks or one that is no number, any transfer but in chunks, packed bodies,
/// two keys, expectations but for 100-continue.
CheckedHead check_head(std::string_view method, std::string_view target, std::string_view version,
                       std::span<const HeaderLine> lines);

/// "application/json", with or without parameters.
bool is_json_type(std::string_view content_type);

}  // namespace temper

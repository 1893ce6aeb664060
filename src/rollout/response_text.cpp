#include "src/rollout/response_text.h"

#include <algorithm>
#include <string_view>

#include "src/core/check.h"

namespace temper {

ResponseText::ResponseText(const GenerateOptions& options, const Tokenizer* tokenizer)
    : options_(options), tokenizer_(tokenizer) {
  CHECK(options.stop.empty() || tokenizer, "stop strings need a tokenizer");
}

bool ResponseText::grow(Sequence& s, int32_t token) const {
  if (!tokenizer_) return false;
  if (!s.decoder) s.decoder = std::make_unique<StreamDecoder>(*tokenizer_, /*skip_special=*/true);
  return add(s, s.decoder->push(token));
}

void ResponseText::end(Sequence& s) const {
  if (s.decoder && !s.text_cut) add(s, s.decoder->finish());
}

bool ResponseText::add(Sequence& s, const std::string& more) const {
  std::string& text = s.response.text;
  const size_t before = text.size();
  text += more;
  size_t cut = std::string::npos;
  for (const std::string& stop : options_.stop) {
    if (s.new_tokens() <= options_.min_new_tokens) break;
    const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
    if (const size_t at = text.find(stop, from); at != std::string::npos)
      cut = std::min(cut, options_.include_stop_text ? at + stop.size() : at);
  }
  s.text_cut = cut != std::string::npos;
  if (s.text_cut) text.resize(cut);
  return s.text_cut;
}

/// Bytes at the end of `text` that may be the beginning of a stop string.
size_t ResponseText::begun_stop(const std::string& text) const {
  size_t longest = 0;
  for (const std::string& stop : options_.stop)
    for (size_t n = std::min(stop.size(), text.size()); n > longest; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  return longest;
}

void ResponseText::skip(Sequence& s, const std::string& before) const {
  s.streamed = before.size() - begun_stop(before);
}

std::string ResponseText::take_certain(Sequence& s) const {
  const std::string& text = s.response.text;
  const bool whole = s.text_cut || s.response.finish != FinishReason::unfinished;
  const size_t from = s.streamed, end = whole ? text.size() : text.size() - begun_stop(text);
  if (end <= from) return {};
  s.streamed = end;
  return text.substr(from, end - from);
}

}  // namespace temper

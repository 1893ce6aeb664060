#include "src/rollout/responses/response_text.h"

#include <algorithm>
#include <string_view>

#include "src/core/check.h"

namespace temper {
namespace {

/// Bytes at the end of `text` that may be the beginning of a stop string.
size_t begun_stop(const std::vector<std::string>& stops, const std::string& text) {
  size_t longest = 0;
  for (const std::string& stop : stops)
    for (size_t n = std::min(stop.size(), text.size()); n > longest; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  return longest;
}

}  // namespace

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
  const GenerateOptions& o = s.rules->options;
  for (const std::string& stop : o.stop) {
    if (s.new_tokens() <= o.min_new_tokens) break;
    const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
    if (const size_t at = text.find(stop, from); at != std::string::npos)
      cut = std::min(cut, o.include_stop_text ? at + stop.size() : at);
  }
  s.text_cut = cut != std::string::npos;
  if (s.text_cut) text.resize(cut);
  return s.text_cut;
}

void ResponseText::skip(Sequence& s, const std::string& before) const {
  s.streamed = before.size() - begun_stop(s.rules->options.stop, before);
}

std::string ResponseText::take_certain(Sequence& s) const {
  const std::string& text = s.response.text;
  const bool whole = s.text_cut || s.response.finish != FinishReason::unfinished;
  const size_t from = s.streamed,
               end = whole ? text.size() : text.size() - begun_stop(s.rules->options.stop, text);
  if (end <= from) return {};
  s.streamed = end;
  return text.substr(from, end - from);
}

}  // namespace temper

#include "src/agents/turns/turn_text.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/agents/turns/call_scan.h"
#include "src/core/check.h"

namespace temper {
namespace {

constexpr std::string_view kWhite = " \t\n\r", kPythonTag = "<|python_tag|>";

/// How many bytes at the end of `text` may begin `tag`.
size_t begun(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n)
    if (tag.starts_with(text.substr(text.size() - n))) return n;
  return 0;
}

/// Text whose last breaks are held back: what comes next may take them away.
class HeldText {
 public:
  explicit HeldText(std::string_view breaks) : breaks_(breaks) {}

  /// Adds to `out` what is certain.
  void add(std::string_view text, std::string& out) {
    const size_t end = text.find_last_not_of(breaks_) + 1;  // npos + 1 = 0
    if (end > 0) {
      out += held_;
      out += text.substr(0, end);
      held_.clear();
    }
    held_ += text.substr(end);
  }
  void drop() { held_.clear(); }
  void flush(std::string& out) {
    out += held_;
    held_.clear();
  }

 private:
  std::string_view breaks_;
  std::string held_;
};

/// The content of a turn, and what of its white space calls take with them.
class Content {
 public:
  void add(std::string_view piece, std::string& out) {
    if (behind_call_) piece.remove_prefix(std::min(piece.find_first_not_of(kWhite), piece.size()));
    if (piece.empty()) return;
    if (behind_call_ && has_text_) out += "\n";
    behind_call_ = false;
    const size_t before = out.size();
    held_.add(piece, out);
    has_text_ |= out.size() > before;
  }
  void add_call() {
    held_.drop();
    behind_call_ = true;
  }
  void end(std::string& out) { held_.flush(out); }

 private:
  HeldText held_{kWhite};
  bool behind_call_ = false, has_text_ = false;
};

}  // namespace

struct TurnStream::State {
  enum class At { start, thoughts, content, may_call, call };

  State(TurnFormat how, const Json& tools)
      : format(std::move(how)), types(format.calls == CallSyntax::xml_tags ? tools : Json()) {
    if (!tools.is_array() || tools.empty()) format.calls = CallSyntax::none;
    const bool thinks = !format.think_open.empty();
    at = !thinks ? content_begins() : format.prompt_opens ? At::thoughts : At::start;
    strip = thinks && format.prompt_opens;
  }

  At content_begins() const { return format.calls == CallSyntax::json ? At::may_call : At::content; }
  std::string_view rest() const { return std::string_view(text).substr(done); }

  void run(bool last) {
    while (step(last)) {
    }
    text.erase(0, done);
    seen -= std::min(seen, done);
    done = 0;
  }

  /// False: more is needed, or (last) nothing is left.
  bool step(bool last) {
    if (at == At::start) return begin(last);
    if (at == At::thoughts) return think(last);
    if (at == At::may_call) return look_for_object(last);
    if (at == At::call) return read_call(last);
    return find_call(last);
  }

  bool begin(bool last) {
    const size_t first = text.find_first_not_of(kWhite, std::max(seen, done));
    seen = std::min(first, text.size());
    const std::string_view there = std::string_view(text).substr(seen, format.think_open.size());
    const bool opens = there == format.think_open;
    if (!opens && !last && std::string_view(format.think_open).starts_with(there)) return false;
    if (opens) done = seen + there.size();
    at = opens ? At::thoughts : content_begins();
    strip = opens;
    seen = done;
    return true;
  }

  bool think(bool last) {
    const std::string_view now = rest();
    const size_t close = now.find(format.think_close);
    const bool found = close != std::string_view::npos;
    const size_t certain = found ? close : now.size() - (last ? 0 : begun(now, format.think_close));
    thoughts.add(stripped(now.substr(0, certain), "\n"), said.reasoning);
    done += certain;
    if (!found) return false;
    thoughts.drop();
    done += format.think_close.size();
    at = content_begins();
    seen = done;
    strip = true;
    return true;
  }

  /// Without the breaks at the begin of a part of the turn.
  std::string_view stripped(std::string_view piece, std::string_view breaks) {
    if (!strip) return piece;
    const size_t begin = std::min(piece.find_first_not_of(breaks), piece.size());
    strip = begin == piece.size();
    return piece.substr(begin);
  }

  bool find_call(bool last) {
    const std::string_view now = rest();
    const bool tags = format.calls == CallSyntax::json_tags || format.calls == CallSyntax::xml_tags;
    const size_t open = tags ? now.find(kCallOpen) : std::string_view::npos;
    const bool found = open != std::string_view::npos;
    const size_t held = tags && !last && !found ? begun(now, kCallOpen) : 0;
    say(now.substr(0, found ? open : now.size() - held));
    if (!found) return false;
    begin_call();
    return true;
  }

  void begin_call() {
    at = At::call;
    scan.emplace(format.calls, types);
  }

  bool look_for_object(bool last) {
    const bool first = calls == 0;
    const size_t begin = text.find_first_not_of(first ? " \t\n\r" : " \t\n\r;", std::max(seen, done));
    seen = std::min(begin, text.size());
    const std::string_view there = std::string_view(text).substr(seen, kPythonTag.size());
    if (first && !tagged && there == kPythonTag) {
      tagged = true;
      seen = begin + kPythonTag.size();
      return true;
    }
    if (there.starts_with('{')) {
      begin_call();
      return true;
    }
    if (!last && (there.empty() || (first && !tagged && kPythonTag.starts_with(there)))) return false;
    at = At::content;
    format.calls = CallSyntax::none;
    return true;
  }

  bool read_call(bool last) {
    const bool object = format.calls == CallSyntax::json;
    const std::string_view now = object ? std::string_view(text).substr(seen) : rest();
    const CallScan::Found found = scan->read(now);
    if (found == CallScan::Found::open && !last) return false;
    const size_t end = found == CallScan::Found::open ? now.size() : scan->end();
    const bool is_call = found == CallScan::Found::call;
    if (is_call) take_call();
    if (object && !is_call) format.calls = CallSyntax::none;  // all of it is content
    if (object && is_call) done = seen + end;
    if (!object && is_call) done += end;
    at = object && is_call ? At::may_call : At::content;
    if (!is_call && !object) say(now.substr(0, end));
    seen = done;
    return true;
  }

  void take_call() {
    said.calls.push_back(scan->take());
    ++calls;
    words.add_call();
  }

  /// Content, which `done` goes behind.
  void say(std::string_view piece) {
    done += piece.size();
    words.add(stripped(piece, "\n"), said.content);
  }

  TurnText take() { return std::exchange(said, {}); }

  TurnFormat format;
  ArgumentTypes types;
  std::string text;  // what came and is not all done
  size_t done = 0, seen = 0;
  At at = At::start;
  bool strip = false, tagged = false;
  int64_t calls = 0;
  HeldText thoughts{"\n"};
  Content words;
  std::optional<CallScan> scan;
  TurnText said;
};

TurnStream::TurnStream(TurnFormat format, const Json& tools)
    : state_(std::make_unique<State>(std::move(format), tools)) {}
TurnStream::~TurnStream() = default;
TurnStream::TurnStream(TurnStream&&) noexcept = default;

TurnText TurnStream::feed(std::string_view piece) {
  state_->text += piece;
  state_->run(/*last=*/false);
  return state_->take();
}

TurnText TurnStream::end() {
  state_->run(/*last=*/true);
  state_->words.end(state_->said.content);
  return state_->take();
}

TurnText parse_turn(std::string_view text, const TurnFormat& format, const Json& tools) {
  TurnStream stream(format, tools);
  TurnText all = stream.feed(text);
  TurnText rest = stream.end();
  all.reasoning += rest.reasoning;
  all.content += rest.content;
  std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(all.calls));
  return all;
}

Json turn_message(const TurnText& turn, const std::vector<std::string>& call_ids) {
  CHECK(call_ids.size() == turn.calls.size(), "{} ids of {} calls", call_ids.size(), turn.calls.size());
  Json message{{"role", "assistant"}, {"content", turn.content}};
  if (!turn.reasoning.empty()) append_member(message, "reasoning_content", turn.reasoning);
  Json calls = Json::array();
  for (size_t i = 0; i < call_ids.size(); ++i)
    calls.push_back(
        Json{{"id", call_ids[i]},
             {"type", "function"},
             {"function", {{"name", turn.calls[i].name}, {"arguments", turn.calls[i].arguments}}}});
  if (!calls.empty()) append_member(message, "tool_calls", std::move(calls));
  return message;
}

}  // namespace temper

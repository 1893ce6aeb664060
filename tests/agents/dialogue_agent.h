#pragma once
// Agents of random dialogues, for tests: with tools and thoughts, histories that are compacted or leave
// answers out, and two answers to one request. What an agent does follows from its number and from what it
// hears.

#include <algorithm>
#include <map>
#include <random>

#include "src/agents/sessions/session.h"
#include "src/agents/turns/messages.h"
#include "src/core/file.h"
#include "tests/support/temp_dir.h"

namespace temper {

using Ids = std::vector<int32_t>;
using Random = std::mt19937_64;

inline bool chance(Random& random, int percent) { return static_cast<int>(random() % 100) < percent; }

inline Json message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

inline const Json kTools =
    Json::parse(R"([{"type": "function", "function": {"name": "add", "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}])");

/// A tokenizer of a folder with another end of text, and with texts that are one token each.
inline Tokenizer changed_tokenizer(const std::string& folder, const std::string& eos,
                                   const std::vector<std::string>& pieces) {
  Json all = Json::parse(read_file(folder + "/tokenizer.json", 1 << 24));
  auto id = static_cast<int64_t>(all["model"]["vocab"].size());
  for (const Json& added : all["added_tokens"]) id = std::max(id, added["id"].get<int64_t>() + 1);
  for (const std::string& piece : pieces)
    all["added_tokens"].push_back({{"id", id++},
                                   {"content", piece},
                                   {"single_word", false},
                                   {"lstrip", false},
                                   {"rstrip", false},
                                   {"normalized", false},
                                   {"special", false}});
  const TempDir changed;
  write_file_atomic(changed / "tokenizer.json", all.dump());
  write_file_atomic(changed / "tokenizer_config.json", Json{{"eos_token", eos}}.dump());
  return Tokenizer::load(changed.path());
}

/// A template of a model with a tokenizer that has its special tokens: minimind's, or bytes.
struct TemplateModel {
  explicit TemplateModel(const std::string& name, const std::vector<std::string>& pieces = {})
      : bytes(name == "deepseek-v3"),
        chat(read_file("tests/golden/chat/templates/" + name + ".jinja", 1 << 20), name),
        words(bytes ? changed_tokenizer("tests/golden/turns", eos(), pieces)
                    : changed_tokenizer("tests/golden/tokenizer/minimind", eos(), pieces)),
        end(*words.token_id(eos())),
        cut(words, chat, Json::object()) {}
  const bool bytes;
  const ChatTemplate chat;
  const Tokenizer words;
  const int32_t end;
  const TurnCut cut;

 private:
  const char* eos() const { return bytes ? "<｜end▁of▁sentence｜>" : "<|im_end|>"; }
};

inline void append(Ids& ids, const Ids& more) { ids.insert(ids.end(), more.begin(), more.end()); }

inline std::string random_text(Random& random, size_t words) {
  const char* const all[] = {"two", " and", "\n",   "  ",   "{\"a\": 1}", "é",
                             "<b>", "7",    "你好", "\n\n", " .",         "</"};
  std::string text;
  for (size_t i = 0; i < words; ++i) text += all[random() % std::size(all)];
  return text;
}

/// An agent of a program: what it does follows from its number and from the answers.
class Agent {
 public:
  Agent(const TemplateModel& m, uint64_t seed) : model_(m), random_(seed) {
    if (seed % 2 == 1) messages_.push_back(message("system", fmt::format("agent {}", seed)));
    messages_.push_back(message("user", fmt::format("a question, {}", seed)));
    tools_ = chance(random_, 60) ? kTools : Json();
    trained_ = chance(random_, 85);
    drops_thoughts_ = chance(random_, 40);
    left_ = 2 + random_() % 4;
    prepare();
  }

  bool through() const { return left_ == 0; }
  bool gives_up() const { return gives_up_; }
  const Json& tools() const { return tools_; }

  TurnAsk request() const {
    TurnAsk ask;
    ask.messages = normal_messages(messages_);
    ask.tools = tools_;
    ask.trained = trained_;
    return ask;
  }

  /// What its next request must have for a prompt.
  Ids expected() const {
    const Json all = normal_messages(messages_);
    size_t last = all.size();
    while (last > 0 && all[last - 1]["role"] != "assistant") --last;
    const auto known = own_.find(last);
    if (last == 0 || known == own_.end()) return model_.cut.whole(all, tools_, nullptr);
    const Json behind(all.begin() + static_cast<int64_t>(last), all.end());
    const auto more = model_.cut.behind(known->second.answer, behind, tools_, nullptr, known->second.end);
    if (!more) return model_.cut.whole(all, tools_, nullptr);
    Ids ids = known->second.ids;
    append(ids, *more);
    return ids;
  }

  void answered(const Ids& prompt, const auto& turn) {
    Own own{.ids = prompt,
            .answer = turn.answer,
            .end = {.last_sampled = turn.response.tokens.back(),
                    .by_stop_id = turn.response.finish == FinishReason::stop}};
    append(own.ids, turn.response.tokens);
    const Json said = as_client_has(turn.answer);
    if (chance(random_, 12)) {  // what it could not read it leaves out
      messages_.push_back(message("user", "again, please"));
    } else if (chance(random_, 10)) {
      compact();
    } else if (chance(random_, 10) &&
               second_.is_null()) {  // best of two; the second one where both say the same is no other
      second_ = said;
      return next();
    } else {
      if (second_.is_null() ||
          !same_message(normal_messages(Json::array({second_}))[0], normal_messages(Json::array({said}))[0]))
        take(said, own);
      else
        messages_.push_back(message("user", "both the same"));
      second_ = nullptr;
    }
    next();
  }

  void gave_up() {
    messages_.push_back(message("user", fmt::format("are you there? {}", left_)));
    next();
  }

  /// The template refuses what it sent.
  void refused() { left_ = 0; }

 private:
  struct Own {
    Ids ids;
    Json answer;
    TurnEnd end;
  };

  Json as_client_has(Json answer) const {
    if (drops_thoughts_) answer.erase("reasoning_content");
    if (answer["content"] == "") answer["content"] = nullptr;
    if (answer.contains("tool_calls"))
      for (Json& call : answer["tool_calls"])
        call["function"]["arguments"] = dump_json_line(call["function"]["arguments"]);
    answer["refusal"] = nullptr;
    return answer;
  }

  void take(const Json& said, const Own& own) {
    messages_.push_back(said);
    own_[normal_messages(messages_).size()] = own;
    bool tool = false;
    if (said.contains("tool_calls"))
      for (const Json& call : said["tool_calls"]) {
        messages_.push_back(
            {{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", random_text(random_, 2)}});
        tool = true;
      }
    if (!tool || chance(random_, 20)) messages_.push_back(message("user", random_text(random_, 3) + "?"));
  }

  void compact() {
    messages_ = Json::array({message("system", fmt::format("compacted {}", random_())),
                             message("user", "so far: much"), message("assistant", "I see."),
                             message("user", "go on")});
    own_.clear();
  }

  void next() {
    --left_;
    prepare();
  }
  void prepare() { gives_up_ = chance(random_, 6); }

  const TemplateModel& model_;
  Random random_;
  Json messages_ = Json::array(), tools_, second_;
  std::map<size_t, Own> own_;  // by the number of messages with its answer
  bool trained_ = true, drops_thoughts_ = false, gives_up_ = false;
  uint64_t left_ = 0;
};

}  // namespace temper

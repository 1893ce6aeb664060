#pragma once
// From a data line to token ids: the text or messages of the line (line_shape.h), the chat template, the
// tokenizer. Prompts
// are rendered once; what is sampled after them is never rendered or tokenised again.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/data/chat_template.h"
#include "src/data/line_shape.h"
#include "src/data/tokenizer/tokenizer.h"

namespace temper {

/// Which turns of the assistant a line trains (with_response): the last one; all of them in one sample; each
/// in a sample of its own.
enum class TrainOn { last, all, each };

struct PromptOptions {
  std::string prompt_key = "prompt", answer_key = "answer", messages_key, response_key = "response";
  bool chat = true;
  std::string system_prompt;
  Json chat_arguments = Json::object();
  bool lines_have_arguments =
      false;                    // all other keys of a line are variables of the template, not "tools" alone
  std::string domain_key = {};  // empty: lines have no domain
  TrainOn train_on = TrainOn::last;
};

struct Prompt {
  std::string text;  // rendered
  std::vector<int32_t> tokens;
  std::string answer;    // of core/text/answer_text.h; empty when the line has none
  std::string domain;    // empty when the line has none
  std::string response;  // SFT: text of the response
  std::vector<int32_t> response_tokens;
  std::vector<uint8_t> response_mask = {};  // 1: trained; empty: all are
};

class PromptBuilder {
 public:
  PromptBuilder(const Tokenizer& tokenizer, const ChatTemplate* chat_template, PromptOptions options);

  /// `where` names the line in errors. With `with_response` the line must hold one; its tokens end with the
  /// end-of-turn token. TrainOn::all: the response begins with the first turn of the assistant, and what
  /// others say in it is not trained; Error(Exit::data) where the template changes earlier turns. `turn`, of
  /// TrainOn::each: that of count_turns.
  Prompt build(const Json& record, const std::string& where, bool with_response, int64_t turn = 0) const;
  /// The line has a prompt and a response.
  bool has_response(const Json& record) const;
  /// `where` for errors about the answer: says so where the line has none.
  std::string where_answer(const Json& record, const std::string& where) const;

 private:
  Prompt read(const Json& record, const std::string& where, bool with_response, int64_t turn) const;
  /// What is said to the template of a line's messages.
  struct Asked {
    const Json& record;
    const std::vector<std::string>& used;  // keys that are no variables
    const std::string& where;
  };
  /// A turn behind `before`, up to its end-of-turn token; `start` is the prompt.
  std::string turn_behind(const std::string& start, const Json& said, const Asked& asked) const;
  void add_all_turns(Prompt& prompt, const Json& messages, const Asked& asked) const;
  Json messages_of(LineParts parts) const;
  /// Error(Exit::data) where the line has tools and `text`, its rendered messages, says nothing of them.
  void require_tools_shown(const std::string& text, const Json& messages, const Asked& asked) const;
  /// `used`: keys of the record that are no variables of the template.
  std::string render(const Json& messages, const Json& record, const std::vector<std::string>& used,
                     bool generation_prompt) const;
  void add_plain_response(Prompt& prompt, std::string response) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate* template_;
  PromptOptions options_;
};

/// Variables of a chat template: messages, add_generation_prompt, the special tokens, then `arguments` over
/// them.
Json template_variables(const Tokenizer& tokenizer, const Json& messages, bool generation_prompt,
                        const Json& arguments);

}  // namespace temper

#pragma once
// Ids behind a sampled turn. The turn's own ids are never made from text again: new messages are rendered
// behind a marker that stands for it, and what the template puts behind the marker is tokenised.
//
// Where templates differ by history there is no cut: each rendering is made behind two histories, and both
// must agree.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/agents/turns/turn_format.h"
#include "src/data/chat_template.h"
#include "src/data/tokenizer/tokenizer.h"

namespace temper {

/// The last thing that was sampled of a turn.
struct TurnEnd {
  std::optional<int32_t> last_sampled;  // none: the turn has no ids
  bool by_stop_id = false;              // it is an id that ends turns
};

/// Safe for threads.
class TurnCut {
 public:
  /// Both outlive it. `chat_arguments`: variables of the template where a request gives none.
  TurnCut(const Tokenizer& tokenizer, const ChatTemplate& chat, Json chat_arguments);

  /// Messages as normal_messages makes them; tools null or empty: none. `arguments` (of the request, an
  /// object or null) go over chat_arguments. RequestError with the template's words where it refuses them.
  std::string whole_text(const Json& messages, const Json& tools, const Json& arguments) const;
  /// The same tokenised, as prompts of data lines are.
  std::vector<int32_t> whole(const Json& messages, const Json& tools, const Json& arguments) const;

  /// RequestError at `tools` where there are some and the template shows nothing of them.
  void require_tools_shown(const Json& messages, const Json& tools, const Json& arguments) const;

  /// What stands between the last sampled id of the turn that said `answer` and the next turn: with the end
  /// token in front where the turn lacks it, the new messages, the generation prompt. nullopt: these messages
  /// have no cut (or the template refuses them): the whole is rendered, and the path forks.
  std::optional<std::vector<int32_t>> behind(const Json& answer, const Json& new_messages, const Json& tools,
                                             const Json& arguments, const TurnEnd& end) const;

  /// How turns are said with these arguments of a request.
  TurnFormat format(const Json& arguments) const;

  /// Kinds of new messages that `behind` has no cut for, of user; tool; two tools; tool, user; system, user;
  /// user, user: said at the start.
  std::vector<std::string> kinds_without_cut() const;

 private:
  Json arguments_over(const Json& arguments) const;
  std::string rendered(const Json& messages, const Json& tools, const Json& arguments,
                       bool generation_prompt) const;
  /// What stands behind the marker of a history; nullopt: nothing, or the template refuses it.
  std::optional<std::string> behind_marker(const Json& messages, const Json& tools, const Json& arguments,
                                           bool generation_prompt) const;
  struct Cut {
    std::string text;
    bool has_end = false;  // it begins with the token that ends a turn
  };
  std::optional<Cut> cut(const Json& answer, const Json& new_messages, const Json& tools,
                         const Json& arguments) const;
  /// What stands behind the marker where nothing follows the answer.
  std::optional<std::string> last_turn(const Json& answer, const Json& tools, const Json& arguments) const;
  /// `text` from the end of the turn on. `last` and `plain` are last_turn of the answer and of one without
  /// calls.
  std::optional<Cut> begin_at_end(const std::string& last, const std::string& plain, std::string text) const;
  bool begins_special(std::string_view text) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  Json chat_arguments_;
  TurnFormat format_;
};

}  // namespace temper

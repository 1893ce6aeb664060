#include "src/agents/sessions/session_requests.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace temper {
namespace {

constexpr size_t kNoNode = MessageTree::kNone;

/// Each turn that was asked for behind the one that it goes on from, and siblings as they stand: in an order,
/// with numbers and with messages that say nothing of what came when.
class RequestWriter {
 public:
  explicit RequestWriter(const KnownTurns& turns)
      : turns_(turns),
        below_(turns.size() + 1),
        number_(turns.size(), kNoNode),
        owner_(turns.messages().size(), kNoNode),
        answer_of_(turns.size(), kNoNode) {
    for (size_t turn = 0; turn < turns.size(); ++turn)
      if (turns[turn].live) below_[parent_of(turn).value_or(turns.size())].push_back(turn);
    for (std::vector<size_t>& siblings : below_)
      std::sort(siblings.begin(), siblings.end(), [&](size_t a, size_t b) { return turns.before(b, a); });
    for (size_t node = 0; node < turns.messages().size(); ++node)
      for (const size_t turn : turns.messages().node(node).answers) answer_of_[turn] = node;
  }

  Json write() {
    Json all = Json::array();
    std::vector<size_t> next = below_.back();  // the last one comes first
    while (!next.empty()) {
      const size_t turn = next.back();
      next.pop_back();
      number_[turn] = all.size();
      all.push_back(request(turn));
      if (const size_t answer = answer_of_[turn]; answer != kNoNode && owner_[answer] == kNoNode)
        owner_[answer] = number_[turn];
      next.insert(next.end(), below_[turn].begin(), below_[turn].end());
    }
    return all;
  }

 private:
  /// Which one of those with equal ids it went on from is a matter of what was there when it came.
  std::optional<size_t> parent_of(size_t turn) const {
    const auto parent = turns_[turn].turn.parent;
    return parent ? std::optional(turns_.first_with_its_ids(*parent)) : std::nullopt;
  }

  /// The messages that the turn's request brought, above whom they stand, and the root if it brought that.
  Json request(size_t turn) {
    const KnownTurn& t = turns_[turn];
    Json made{{"turn", number_[turn]}};
    if (const auto parent = parent_of(turn)) append_member(made, "parent", number_[*parent]);
    if (!t.turn.trained) append_member(made, "trained", false);
    if (t.node == kNoNode) {
      append_member(made, "ids", t.turn.behind);
      return made;
    }
    const MessageTree& tree = turns_.messages();
    std::vector<size_t> brought;
    size_t at = t.node;
    for (; at != kNoNode && owner_[at] == kNoNode; at = tree.node(at).above) {
      owner_[at] = number_[turn];
      brought.push_back(at);
    }
    size_t known = 0;
    for (size_t above = at; above != kNoNode && tree.node(above).above != kNoNode; above = tree.node(above).above)
      ++known;
    append_member(made, "known", known);
    if (at != kNoNode) append_member(made, "of", owner_[at]);
    Json messages = Json::array();
    for (auto node = brought.rbegin(); node != brought.rend(); ++node)
      if (tree.node(*node).above == kNoNode)
        made.update(tree.node(*node).message);
      else
        messages.push_back(tree.node(*node).message);
    append_member(made, "messages", std::move(messages));
    return made;
  }

  const KnownTurns& turns_;
  std::vector<std::vector<size_t>> below_;  // by turn; the last entry: turns that go on from none
  std::vector<size_t> number_;              // by turn, in the order of writing
  std::vector<size_t> owner_;               // by node: the number of the turn that brought it
  std::vector<size_t> answer_of_;           // by turn: the node of its answer
};

}  // namespace

Json session_requests(const KnownTurns& turns) { return RequestWriter(turns).write(); }

}  // namespace temper

#include "src/agents/sessions/message_tree.h"

#include <string>
#include <utility>

#include "src/agents/sessions/canonical.h"
#include "src/agents/turns/messages.h"

namespace temper {
namespace {

Json root_of(const Json& tools, const Json& arguments) {
  return {{"tools", tools.empty() ? Json() : tools}, {"arguments", arguments.empty() ? Json() : arguments}};
}

uint64_t root_hash(const Json& root) { return std::hash<std::string>()(canonical(root)); }

uint64_t place(size_t above, uint64_t hash) { return hash ^ (above + 1) * 0x9e3779b97f4a7c15u; }

}  // namespace

size_t MessageTree::find(size_t above, uint64_t hash, const Json& message) const {
  const auto [begin, end] = below_.equal_range(place(above, hash));
  for (auto at = begin; at != end; ++at) {
    const Node& node = nodes_[at->second];
    if (node.above != above) continue;
    if (above == kNone ? same_value(node.message, message)
                       : same_message(node.message, message) && same_message(message, node.message))
      return at->second;
  }
  return kNone;
}

size_t MessageTree::append(size_t above, uint64_t hash, Json message, size_t turn) {
  below_.emplace(place(above, hash), nodes_.size());
  nodes_.push_back({.above = above, .turn = turn, .message = std::move(message)});
  return nodes_.size() - 1;
}

size_t MessageTree::find_root(const Json& tools, const Json& arguments) const {
  const Json root = root_of(tools, arguments);
  return find(kNone, root_hash(root), root);
}

size_t MessageTree::add_root(const Json& tools, const Json& arguments, size_t turn) {
  Json root = root_of(tools, arguments);
  const uint64_t hash = root_hash(root);
  const size_t found = find(kNone, hash, root);
  return found != kNone ? found : append(kNone, hash, std::move(root), turn);
}

size_t MessageTree::add(size_t above, const Json& message, size_t turn) {
  const uint64_t hash = message_hash(message);
  const size_t found = find(above, hash, message);
  return found != kNone ? found : append(above, hash, message, turn);
}

MessageTree::Found MessageTree::deepest(size_t root, const Json& messages) const {
  Found found;
  std::vector<size_t> at{root};
  for (size_t i = 0; i < messages.size() && !at.empty(); ++i) {
    const uint64_t hash = message_hash(messages[i]);
    std::vector<size_t> next, turns;
    for (const size_t above : at) {
      const auto [begin, end] = below_.equal_range(place(above, hash));
      for (auto child = begin; child != end; ++child) {
        const Node& node = nodes_[child->second];
        if (node.above != above || !same_message(node.message, messages[i])) continue;
        next.push_back(child->second);
        turns.insert(turns.end(), node.answers.begin(), node.answers.end());
      }
    }
    if (!turns.empty()) found = {i + 1, std::move(turns)};
    at = std::move(next);
  }
  return found;
}

}  // namespace temper

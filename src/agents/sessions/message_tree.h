#pragma once
// What the requests of a session said, each message below the one before it, and which turns said the
// assistant's. Below roots by tools and template arguments. A message that several requests begin with is
// kept once.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "src/core/json.h"

namespace temper {

class MessageTree {
 public:
  static constexpr size_t kNone = SIZE_MAX;
  struct Node {
    size_t above = kNone;  // kNone: a root, whose message is {"tools", "arguments"}
    size_t turn = 0;       // whose request, or answer, brought it
    Json message = {};
    std::vector<size_t> answers = {};  // the turns that said it
  };

  /// The root of a request with these tools and arguments, null: none; kNone where there is no such.
  size_t find_root(const Json& tools, const Json& arguments) const;
  /// The same; `turn` brings it where there is none.
  size_t add_root(const Json& tools, const Json& arguments, size_t turn);
  /// The node of a message that is the same both ways, thoughts included; `turn` brings it where there is
  /// none.
  size_t add(size_t above, const Json& message, size_t turn);
  void add_answer(size_t node, size_t turn) { nodes_[node].answers.push_back(turn); }

  /// The deepest turns whose history and answer are the first `depth` messages; depth 0: there are none.
  struct Found {
    size_t depth = 0;
    std::vector<size_t> turns = {};
  };
  Found deepest(size_t root, const Json& messages) const;

  const Node& node(size_t index) const { return nodes_[index]; }
  size_t size() const { return nodes_.size(); }

 private:
  size_t find(size_t above, uint64_t hash, const Json& message) const;
  size_t append(size_t above, uint64_t hash, Json message, size_t turn);

  std::vector<Node> nodes_;
  std::unordered_multimap<uint64_t, size_t> below_;  // by the node above and the message's hash
};

}  // namespace temper

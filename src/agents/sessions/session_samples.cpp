#include "src/agents/sessions/session_samples.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/rl/routes.h"

namespace temper {
namespace {

using Path = std::vector<size_t>;

/// Where turns have equal ids the first one stands for all as a parent: which of them a request went on
/// from is a matter of what was there when it came.
std::optional<size_t> parent_of(const KnownTurns& turns, size_t turn) {
  const auto parent = turns[turn].turn.parent;
  return parent ? std::optional(turns.first_with_its_ids(*parent)) : std::nullopt;
}

/// The turns that count and lead to one that is trained, below what they go on from (the last entry: paths
/// begin with them), in their order.
std::vector<Path> children(const KnownTurns& turns) {
  const size_t count = turns.size();
  std::vector<Path> below(count + 1);
  for (size_t turn = 0; turn < count; ++turn)
    if (turns[turn].counts()) below[parent_of(turns, turn).value_or(count)].push_back(turn);
  for (Path& siblings : below)
    std::sort(siblings.begin(), siblings.end(), [&](size_t a, size_t b) { return turns.before(a, b); });
  return below;
}

/// All paths from a first turn to a leaf, in order; leaves that train nothing are cut off.
std::vector<Path> paths_to_leaves(const KnownTurns& turns) {
  const std::vector<Path> below = children(turns);
  std::vector<Path> paths;
  struct At {
    size_t turn, next = 0;
    bool led = false;  // to a leaf
  };
  std::vector<At> walk{{turns.size()}};
  while (!walk.empty()) {
    At& at = walk.back();
    if (at.next < below[at.turn].size()) {
      walk.push_back({below[at.turn][at.next++]});
      continue;
    }
    const bool leaf = !at.led && at.turn < turns.size() && turns[at.turn].turn.trained;
    if (leaf) {
      paths.emplace_back();
      for (size_t i = 1; i < walk.size(); ++i) paths.back().push_back(walk[i].turn);
    }
    const bool led = at.led || leaf;
    walk.pop_back();
    if (!walk.empty()) walk.back().led = walk.back().led || led;
  }
  return paths;
}

class SampleWriter {
 public:
  void observe(const std::vector<int32_t>& ids, int64_t version) {
    if (!begun_) return append(sample_.prompt_tokens, ids);
    Response& r = sample_.response;
    append(r.tokens, ids);
    r.mask.resize(r.tokens.size(), 0);
    r.logprobs.resize(r.tokens.size(), 0);
    add_run(version, static_cast<int32_t>(ids.size()));
  }

  /// `trained`: here.
  void sampled(const Response& turn, bool trained) {
    begun_ = begun_ || trained;
    if (!begun_) return append(sample_.prompt_tokens, turn.tokens);
    Response& r = sample_.response;
    append(r.tokens, turn.tokens);
    for (size_t i = 0; i < turn.tokens.size(); ++i) {
      const bool counted = trained && turn.mask[i] != 0;
      r.mask.push_back(counted);
      r.logprobs.push_back(counted ? turn.logprobs[i] : 0);
    }
    // Within a turn they are as the engine left them, runs of no tokens too.
    add_run(turn.versions.front().first, turn.versions.front().second);
    r.versions.insert(r.versions.end(), turn.versions.begin() + 1, turn.versions.end());
  }

  void routes(const Routes& rows) {
    Routes& all = sample_.response.routes;
    if (rows.empty()) return;
    if (all.empty()) return void(all = rows);
    all.insert(all.end(), rows.begin() + std::ssize(make_routes(route_shape(rows))), rows.end());
  }

  SessionSample take(const Response& last, size_t turns, size_t fork) {
    sample_.response.text = last.text;
    sample_.response.finish = last.finish;
    sample_.turns = static_cast<int32_t>(turns);
    sample_.fork = static_cast<int32_t>(fork);
    return std::move(sample_);
  }

 private:
  static void append(std::vector<int32_t>& to, const std::vector<int32_t>& ids) {
    to.insert(to.end(), ids.begin(), ids.end());
  }
  void add_run(int64_t version, int32_t count) {
    auto& runs = sample_.response.versions;
    if (!runs.empty() && runs.back().first == version)
      runs.back().second += count;
    else
      runs.emplace_back(version, count);
  }

  SessionSample sample_;
  bool begun_ = false;
};

}  // namespace

std::vector<SessionSample> session_samples(const KnownTurns& turns) {
  std::vector<SessionSample> samples;
  std::vector<bool> taken(turns.size());
  for (const Path& path : paths_to_leaves(turns)) {
    SampleWriter writer;
    for (const size_t turn : path) {
      const SessionTurn& t = turns[turn].turn;
      const bool trained = t.trained && !taken[turn];
      taken[turn] = true;
      writer.observe(t.behind, t.response.versions.front().first);
      writer.sampled(t.response, trained);
      writer.routes(t.response.routes);
    }
    samples.push_back(writer.take(turns[path.back()].turn.response, path.size(), samples.size()));
  }
  return samples;
}

}  // namespace temper

#include "src/run/session/older_weights.h"

#include <algorithm>

#include "src/core/file.h"
#include "src/run/session/run_rank.h"

namespace temper {
namespace {

constexpr const char* kOldest = "oldest_weights";

std::string name_of(int64_t version, const ParamSpec& spec) {
  return fmt::format("older/{}/{}", step_name(version), spec.name);
}

/// The version that the first step which is not whole is generated with; its own step: none is older.
int64_t first_version(GroupExchange& groups, const StepsAhead& ahead) {
  for (int64_t s = ahead.step + 1; s <= ahead.last; ++s)
    if (groups.peek_made(s).note.cut) return std::max<int64_t>(0, s - 1 - ahead.lag);
  return ahead.step;
}

}  // namespace

void save_older_weights(RunLinks& links, const ParameterStore& weights, CheckpointWriter& checkpoint,
                        const StepsAhead& ahead) {
  const int64_t oldest = first_version(links.groups, ahead);
  if (oldest == ahead.step) return;
  for (int64_t version = oldest; version < ahead.step; ++version) {
    const bool kept = links.weights.look_into_sent(
        weights, version, [&](const Parameter& p, const WeightPiece& piece, const char* bytes) {
          const RowMove& move = piece.move;
          if (!move.first) return;
          const int64_t row = p.spec.size() / p.spec.shape.front();
          const FlatRange range{move.whole * row, (move.whole + move.rows) * row};
          const Tensor data = make_tensor(const_cast<char*>(bytes), p.value.dtype, {range.size()});
          checkpoint.tensor({name_of(version, p.spec), p.spec.shape, range, data});
        });
    CHECK(kept, "weights {} are not kept, steps are generated with them after step {}", version, ahead.step);
  }
  checkpoint.count(kOldest, oldest);
}

int64_t oldest_weights(const CheckpointReader& checkpoint) {
  return checkpoint.has_meta(kOldest) ? checkpoint.count(kOldest) : checkpoint.step();
}

void publish_older_weights(RunRank& rank, const CheckpointReader& checkpoint, Role* rollout) {
  ParameterStore& weights = rank.policy->parameters();
  for (int64_t version = rank.files.resume.weights; version < rank.files.resume.step; ++version) {
    std::vector<StateTensor> tensors;
    for (const Parameter& p : weights.list()) {
      if (p.spec.whose == Whose::base) continue;
      const int64_t row = p.spec.size() / p.spec.shape.front();
      for (const RowSpan& span : p.spans) {
        if (span.rows == 0) continue;  // another rank's
        const Tensor own = rows(p.value, span.own, span.own + span.rows);
        tensors.push_back({name_of(version, p.spec),
                           p.spec.shape,
                           {span.whole * row, (span.whole + span.rows) * row},
                           make_tensor(own.raw(), own.dtype, {own.size()}),
                           weights.device()});
      }
    }
    checkpoint.fill(tensors);
    rank.links.weights.publish_older(rank.host->ctx(), weights, version);
    if (!rollout) continue;
    rank.links.weights.start(version);
    rollout->phase(version + 1);
    rank.lend_memory();
  }
  rank.links.weights.start(rank.files.resume.step);
}

}  // namespace temper

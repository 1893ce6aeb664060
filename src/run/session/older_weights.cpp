#include "src/run/session/older_weights.h"

#include <algorithm>

#include "src/core/file.h"

namespace temper {
namespace {

constexpr const char* kOldest = "oldest_weights";

std::string name_of(int64_t version, const ParamSpec& spec) {
  return fmt::format("older/{}/{}", step_name(version), spec.name);
}

/// The version that the first step which is not whole is generated with; `step`: none is older.
int64_t first_version(RunRank& rank, int64_t step) {
  const int64_t lag = rank.task.lag();
  for (int64_t s = step + 1; s <= std::min(step + lag, rank.last_step()); ++s)
    if (rank.groups.peek_made(s).note.cut) return std::max<int64_t>(0, s - 1 - lag);
  return step;
}

}  // namespace

void save_older_weights(RunRank& rank, CheckpointWriter& checkpoint, int64_t step) {
  if (!rank.placement.ranks.generate_apart()) return;
  const ParameterStore& weights = rank.policy->parameters();
  const int64_t oldest = first_version(rank, step);
  if (oldest == step) return;
  for (int64_t version = oldest; version < step; ++version) {
    const bool kept = rank.weights.look_into_sent(
        weights, version, [&](const Parameter& p, const WeightPiece& piece, const char* bytes) {
          const RowMove& move = piece.move;
          if (!move.first) return;
          const int64_t row = p.spec.size() / p.spec.shape.front();
          const FlatRange range{move.whole * row, (move.whole + move.rows) * row};
          const Tensor data = make_tensor(const_cast<char*>(bytes), weights.dtype(), {range.size()});
          checkpoint.tensor({name_of(version, p.spec), p.spec.shape, range, data});
        });
    CHECK(kept, "weights {} are not kept, steps are generated with them after step {}", version, step);
  }
  checkpoint.count(kOldest, oldest);
}

int64_t oldest_weights(const CheckpointReader& checkpoint) {
  return checkpoint.has_meta(kOldest) ? checkpoint.count(kOldest) : checkpoint.step();
}

void publish_older_weights(RunRank& rank, const CheckpointReader& checkpoint, Role* rollout) {
  ParameterStore& weights = rank.policy->parameters();
  for (int64_t version = rank.resume.weights; version < rank.resume.step; ++version) {
    std::vector<StateTensor> tensors;
    for (const Parameter& p : weights.list()) {
      const int64_t row = p.spec.size() / p.spec.shape.front();
      for (const RowSpan& span : p.spans) {
        if (span.rows == 0) continue;  // another stage's
        const Tensor own = rows(p.value, span.own, span.own + span.rows);
        tensors.push_back({name_of(version, p.spec),
                           p.spec.shape,
                           {span.whole * row, (span.whole + span.rows) * row},
                           make_tensor(own.raw(), weights.dtype(), {own.size()}),
                           weights.device()});
      }
    }
    checkpoint.fill(tensors);
    rank.weights.publish_older(rank.host->ctx(), weights, version);
    if (!rollout) continue;
    rank.weights.start(version);
    rollout->phase(version + 1);
    rank.lend_memory();
  }
  rank.weights.start(rank.resume.step);
}

}  // namespace temper

#include "src/train/token_pass.h"

#include <cstring>

#include "src/core/process/progress.h"
#include "src/models/join_pass.h"
#include "src/nn/parallel/context_parallel.h"
#include "src/ops/rows.h"
#include "src/train/stage_borders.h"

namespace temper {
namespace {

std::vector<int64_t> packed_lengths(std::span<const Trajectory* const> all) {
  std::vector<int64_t> lengths;
  for (const Trajectory* t : all) lengths.push_back(packed_length(*t));
  return lengths;
}

PackPlan pack_plan(std::span<const Trajectory* const> all, int num_ranks, const PassOptions& options,
                   int stages) {
  const std::vector<int64_t> lengths = packed_lengths(all);
  const bool smaller = stages > 1 && options.least_of_stages > 0;
  const int64_t budget =
      smaller ? pipeline_budget(lengths, num_ranks, stages, options.least_of_stages, options.token_budget)
              : options.token_budget;
  return plan_packing(lengths, num_ranks, budget, options.cost);
}

/// Calls see(micro-batch, head's values per target row) for each of these micro-batches, on the last stage.
template <class See>
void see_values(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& microbatches,
                size_t passes, const See& see) {
  for_each_microbatch(
      c, pass, microbatches, passes, {},
      [&](const ModelPart& part, const Microbatch& mb, size_t, const Tensor& hidden) {
        if (!part.is_last()) return;
        see(mb, stats_of_all(c, pass.model, mb,
                             own_stats(c, pass.model, hidden, mb.target_ids(c), pass.options.temperature)));
      });
}

/// Log-probs of the sequences in the micro-batches of a rank; zeros of the others.
std::vector<std::vector<double>> score(Ctx& c, const TokenPass& pass, const PackPlan& plan, int rank) {
  const std::span<const Trajectory* const> all = pass.all;
  const std::vector<std::vector<int32_t>>& mine = plan.ranks[static_cast<size_t>(rank)];
  std::vector<std::vector<double>> result(all.size());
  for (size_t i = 0; i < all.size(); ++i) result[i].assign(all[i]->response.tokens.size(), 0.0);
  see_values(c, pass, mine, passes_of(pass.model, plan, mine),
             [&](const Microbatch& mb, const TokenStats& stats) {
               const std::vector<double> logprob = to_host<double>(c, stats.logprob);
               for (size_t i = 0; i < logprob.size(); ++i)
                 result[static_cast<size_t>(mb.sequence[i])][static_cast<size_t>(mb.offset[i])] = logprob[i];
             });
  return result;
}

}  // namespace

void for_each_microbatch(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& microbatches,
                         size_t passes, const BeforePart& before, const AfterPart& after) {
  const auto& [model, all, options, pipeline] = pass;
  const ArenaScope all_of(c.scratch);
  const Schedule order = schedule({pipeline.stages(), static_cast<int>(std::ssize(model.parts()))},
                                  pipeline.stage(), static_cast<int64_t>(passes), forward_steps);
  StageBorders borders(c, model, all, microbatches, order.borders);
  for (const ScheduleSlot& time : order.slots) {
    note_progress();
    ArenaScope scope(c.scratch);
    const auto index = static_cast<size_t>(time.step ? time.step->microbatch : 0);
    const bool works = time.step && index < microbatches.size();
    if (!works) pipeline.exchange(c, borders.sent(time, microbatches.size()), Parcel());
    if (!time.step) continue;
    const ModelPart part(model, model.parts()[static_cast<size_t>(time.step->chunk)]);
    if (!works) {
      join_forward(c, part);
      continue;
    }
    Microbatch mb = pack_for(model, all, microbatches[index]);
    const LaneSpan span(c.lane, "forward of a micro-batch, rows", mb.num_tokens());
    Residual x;
    if (time.from >= 0)
      x.stream = c.scratch.make({model.stream_rows(mb.stream()), model.config().hidden_size}, model.dtype());
    pipeline.exchange(c, borders.sent(time, microbatches.size()), parcel(time.from, x.stream));
    RouterNotes routers;
    add_given_routes(c, c.scratch, routers, options.routes, model, mb, routes_of(all, microbatches[index]));
    mb.routers = &routers;
    if (before) before(mb, index);
    Tensor hidden;
    if (part.is_last())
      hidden = target_hidden(c, part, mb, nullptr, x);
    else
      forward_stage(c, part, mb.batch(c), x, nullptr, borders.take(time, mb));
    after(part, mb, index, hidden);
  }
}

size_t passes_of(const Model& model, const PackPlan& plan, const std::vector<std::vector<int32_t>>& mine) {
  size_t passes = mine.size();
  if (model.parameters().split() || model.passes_together())
    for (const auto& of_rank : plan.ranks) passes = std::max(passes, of_rank.size());
  return passes;
}

PackPlan shared_plan(std::span<const Trajectory* const> all, Comm& comm, const PassOptions& options,
                     int stages) {
  std::string bytes;
  if (comm.rank() == 0) bytes = pack_plan(all, comm.size(), options, stages).to_bytes();
  return PackPlan::from_bytes(comm.broadcast(bytes, 0, "packing plan"));
}

Microbatch pack_for(const Model& model, std::span<const Trajectory* const> all,
                    std::span<const int32_t> sequences) {
  Microbatch mb = pack(all, sequences);
  if (Collectives* cp = model.splits().cp) mb.keep_share(cp->rank(), cp->size());
  return mb;
}

TokenStats own_stats(Ctx& c, const Model& model, const CTensor& rows, const CTensor& targets,
                     double temperature) {
  if (rows.dim(0) > 0) return model.head().forward(c, rows, targets, temperature);
  const Tensor none = c.scratch.make({0}, accumulate_dtype(rows.dtype));
  return {none, none, none};
}

TokenStats stats_of_all(Ctx& c, const Model& model, const Microbatch& mb, const TokenStats& own) {
  if (model.splits().cp_ranks() == 1) return own;
  const auto gathered = [&](const Tensor& mine) {
    const Tensor all = c.scratch.make({std::ssize(mb.targets)}, mine.dtype);
    const FlatRange& here = mb.own_targets;
    if (here.size() > 0) device::copy(c.lane, rows(all, here.begin, here.end).raw(), mine.data, mine.bytes());
    gather_targets(c, *model.splits().cp, all, mb.targets_of);
    return all;
  };
  return {gathered(own.logprob), gathered(own.entropy), {}};
}

Tensor target_hidden(Ctx& c, const ModelPart& part, const Microbatch& mb, PassSaved* saved,
                     const Residual& x) {
  const Model& model = part.model;
  Tensor chosen = c.scratch.make({mb.own_targets.size(), model.config().hidden_size}, model.dtype());
  const Tensor hidden = forward_pass(c, part, mb.batch(c), saved, x);
  gather_rows(c, chosen, hidden, mb.target_rows(c));
  return chosen;
}

std::vector<std::vector<double>> local_logprobs(Ctx& c, const Model& model,
                                                std::span<const Trajectory* const> all,
                                                const PassOptions& options, const Pipeline& pipeline) {
  const PackPlan plan = pack_plan(all, 1, options, pipeline.stages());
  std::vector<std::vector<double>> result = score(c, {model, all, options, pipeline}, plan, 0);
  for (std::vector<double>& of : result)
    pipeline.copy_from_last(of, "log-probs of a sequence, copied from the last stage");
  return result;
}

std::vector<TokenValues> local_token_values(Ctx& c, const Model& model,
                                            std::span<const Trajectory* const> all,
                                            const PassOptions& options) {
  const PackPlan plan = pack_plan(all, 1, options, 1);
  std::vector<TokenValues> result(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    result[i].logprob.resize(all[i]->response.tokens.size());
    result[i].entropy.resize(all[i]->response.tokens.size());
  }
  const auto& mine = plan.ranks.front();
  see_values(c, {model, all, options, Pipeline()}, mine, mine.size(),
             [&](const Microbatch& mb, const TokenStats& stats) {
               const std::vector<double> logprob = to_host<double>(c, stats.logprob);
               const std::vector<double> entropy = to_host<double>(c, stats.entropy);
               for (size_t i = 0; i < logprob.size(); ++i) {
                 TokenValues& of = result[static_cast<size_t>(mb.sequence[i])];
                 of.logprob[static_cast<size_t>(mb.offset[i])] = logprob[i];
                 of.entropy[static_cast<size_t>(mb.offset[i])] = entropy[i];
               }
             });
  return result;
}

std::vector<std::vector<double>> packed_logprobs(Ctx& c, const Model& model, Comm& comm,
                                                 std::span<const Trajectory* const> all,
                                                 const PassOptions& options, const Pipeline& pipeline) {
  const PackPlan plan = shared_plan(all, comm, options, pipeline.stages());
  std::vector<std::vector<double>> result = score(c, {model, all, options, pipeline}, plan, comm.rank());
  // Each rank sends the rows of its own sequences; the plan says whose they are.
  std::string mine;
  for (const auto& sequences : plan.ranks[static_cast<size_t>(comm.rank())])
    for (int32_t i : sequences) {
      const auto& row = result[static_cast<size_t>(i)];
      mine.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(double));
    }
  mine = pipeline.from_last(mine, "log-probs of the packed pass, copied from the last stage");
  const std::vector<std::string> parts = comm.all_gather(mine, "log-probs of the packed pass, copied");
  for (size_t r = 0; r < parts.size(); ++r) {
    const char* from = parts[r].data();
    for (const auto& sequences : plan.ranks[r])
      for (int32_t i : sequences) {
        auto& row = result[static_cast<size_t>(i)];
        std::memcpy(row.data(), from, row.size() * sizeof(double));
        from += row.size() * sizeof(double);
      }
    CHECK(from == parts[r].data() + parts[r].size(), "rank {} sent {} bytes of log-probs", r,
          parts[r].size());
  }
  return result;
}

}  // namespace temper

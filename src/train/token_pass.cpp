#include "src/train/token_pass.h"

#include <cstring>

#include "src/ops/rows.h"

namespace temper {

std::vector<double> to_doubles(const CTensor& t) {
  std::vector<double> values(static_cast<size_t>(t.size()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = t.dtype == DType::f64 ? t.as<double>()[i] : static_cast<double>(t.as<float>()[i]);
  return values;
}

PackPlan shared_plan(std::span<const Trajectory* const> all, Comm& comm, const PassOptions& options) {
  std::string bytes;
  if (comm.rank() == 0) {
    std::vector<int64_t> lengths;
    for (const Trajectory* t : all) lengths.push_back(packed_length(*t));
    bytes = plan_packing(lengths, comm.size(), options.token_budget, options.cost).to_bytes();
  }
  return PackPlan::from_bytes(comm.broadcast(bytes, 0, "packing plan"));
}

Tensor target_hidden(Ctx& c, const Model& model, const Microbatch& mb, ModelSaved* saved) {
  const auto n = static_cast<int64_t>(mb.rows.size());
  Tensor chosen = c.arena.make({n, model.config().hidden_size}, model.dtype());
  const Tensor hidden = model.forward(c, mb.batch(), saved);
  gather_rows(c, chosen, hidden, view_of(mb.rows.data(), {n}));
  return chosen;
}

std::vector<std::vector<double>> packed_logprobs(Ctx& c, const Model& model, Comm& comm,
                                                 std::span<const Trajectory* const> all,
                                                 const PassOptions& options) {
  const PackPlan plan = shared_plan(all, comm, options);
  std::vector<std::vector<double>> result(all.size());
  for (size_t i = 0; i < all.size(); ++i) result[i].assign(all[i]->response_tokens.size(), 0.0);
  for (const auto& sequences : plan.ranks[static_cast<size_t>(comm.rank())]) {
    ArenaScope scope(c.arena);
    const Microbatch mb = pack(all, sequences);
    const Tensor hidden = target_hidden(c, model, mb, nullptr);
    const CTensor targets = view_of(mb.targets.data(), {hidden.dim(0)});
    const std::vector<double> logprob =
        to_doubles(model.head().forward(c, hidden, targets, options.temperature).logprob);
    for (size_t i = 0; i < logprob.size(); ++i)
      result[static_cast<size_t>(mb.sequence[i])][static_cast<size_t>(mb.offset[i])] = logprob[i];
  }
  // Each rank sends the rows of its own sequences; the plan says whose they are.
  std::string mine;
  for (const auto& sequences : plan.ranks[static_cast<size_t>(comm.rank())])
    for (int32_t i : sequences) {
      const auto& row = result[static_cast<size_t>(i)];
      mine.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(double));
    }
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

#include "src/run/roles/gradient_dump.h"

#include <algorithm>

#include "src/core/file.h"
#include "src/io/hf/safetensors.h"
#include "src/run/exchange/shared_weights.h"

namespace temper {
namespace {

constexpr int64_t kWindow = int64_t{1} << 20;  // elements

/// Rows of a parameter as a tensor of the file; `first`: their first element.
TensorToWrite tensor_of(const Parameter& p, const HfPart& part, int64_t first, const ElementReader& read) {
  const DType dtype = accumulate_dtype(p.value.dtype);
  std::vector<int64_t> shape = p.spec.shape;
  shape[0] = part.rows;
  const int64_t count = p.spec.size() / p.spec.shape[0] * part.rows;
  return {part.name, dtype == DType::f64 ? "F64" : "F32", shape,
          [&p, &read, dtype, first, count](OutputFile& out) {
            Arena memory;
            const Tensor window = memory.make({std::min(kWindow, count)}, dtype);
            for (int64_t at = 0; at < count; at += kWindow) {
              const Tensor some = rows(window, 0, std::min(kWindow, count - at));
              read(p.spec, first + at, some.size(), some);
              out.write(some.data, some.bytes());
            }
          }};
}

void write_gradients(const std::string& folder, const ParameterStore& store, int64_t update,
                     const ElementReader& read) {
  make_directories(folder);
  std::vector<TensorToWrite> tensors;
  for (const Parameter& p : store.list()) {
    if (!p.spec.trained) continue;
    int64_t first = 0;
    for (const HfPart& part : tensors_of(p.spec)) {
      tensors.push_back(tensor_of(p, part, first, read));
      first += p.spec.size() / p.spec.shape[0] * part.rows;
    }
  }
  const std::string path = join_path(folder, fmt::format("update-{:06d}.safetensors", update));
  if (path_exists(path)) remove_tree(path);
  write_safetensors(path, tensors);
}

/// The gradients of all units on every rank that has them, where values are: in their own place, or in
/// `memory`, where only shards are kept or not all is trained.
Tensor whole_gradients(Ctx& c, Arena& memory, const SumRanks& over, const ParameterStore& store) {
  const auto trained = [](const Unit& unit) { return unit.trained; };
  const bool apart =
      store.shards_grads() || !std::all_of(store.units().begin(), store.units().end(), trained);
  const Tensor all =
      apart ? memory.make({store.num_elements()}, accumulate_dtype(store.dtype())) : store.flat_grads();
  for (const Unit& unit : store.units()) {
    if (unit.range.size() == 0 || !unit.trained) continue;  // another rank has it
    const Tensor whole = rows(all, unit.range.begin, unit.range.end);
    Collectives& dp = over.of(unit);
    const FlatRange own = shard_range(whole.size(), dp.rank(), dp.size());
    if (const Tensor sums = store.grad_sums(unit.range.begin + own.begin, own.size());
        apart && own.size() > 0)
      device::copy(c.lane, rows(whole, own.begin, own.end).raw(), sums.data, sums.bytes());
    dp.all_gather_shards(c, whole, "gradients for the dump, copied from their dp owners");
  }
  return all;
}

}  // namespace

Trainer::GradientHook gradient_dump(const std::string& folder, const Mesh& mesh, const RolePlan& role) {
  return [&, folder](Ctx& c, ParameterStore& store, int64_t update) {
    Arena memory(store.device());
    const Tensor all = whole_gradients(c, memory, SumRanks(mesh), store);
    c.lane.wait();
    if (!role.is_of_first_model(mesh.control(AxisSet::all()).rank())) return;
    const HeldPart held = [&](const Parameter& p) { return rows(all, p.offset, p.offset + p.value.size()); };
    read_shared({mesh.control(role.one_model()), role.holders_of_one()}, store, held,
                [&](const ElementReader& read) { write_gradients(folder, store, update, read); });
  };
}

}  // namespace temper

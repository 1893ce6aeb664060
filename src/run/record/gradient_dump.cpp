#include "src/run/record/gradient_dump.h"

#include "src/core/file.h"
#include "src/io/safetensors.h"

namespace temper {

Trainer::GradientHook gradient_dump(const std::string& folder, Collectives& dp) {
  return [folder, &dp](Ctx& c, ParameterStore& store, int64_t update) {
    for (const Unit& unit : store.units())
      dp.all_gather_shards(c, store.grads_of(unit), "gradients for the dump, copied from their dp owners");
    if (dp.rank() != 0) return;
    c.lane.wait();
    device::HostWindows windows(store.device());
    make_directories(folder);
    std::vector<TensorToWrite> tensors;
    for (const Parameter& p : store.list()) {
      const int64_t row = p.spec.size() / p.spec.shape[0] * dtype_size(p.grad.dtype);
      const char* at = static_cast<const char*>(p.grad.data);
      for (const HfPart& part : p.spec.parts) {
        std::vector<int64_t> shape = p.spec.shape;
        shape[0] = part.rows;
        tensors.push_back({part.name, p.grad.dtype == DType::f64 ? "F64" : "F32", shape,
                           [&windows, at, bytes = part.rows * row](OutputFile& out) {
                             windows.read(at, bytes,
                                          [&](const char* from, int64_t n) { out.write(from, n); });
                           }});
        at += part.rows * row;
      }
    }
    const std::string path = join_path(folder, fmt::format("update-{:06d}.safetensors", update));
    if (path_exists(path)) remove_tree(path);
    write_safetensors(path, tensors);
  };
}

}  // namespace temper

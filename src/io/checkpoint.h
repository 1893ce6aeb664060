#pragma once
// Checkpoints: a folder step-XXXXXX with one HDF5 file per rank and a manifest written last.
// Save: every rank writes a new file in a .tmp folder and syncs it; rank 0 checks that the pieces cover every
// tensor exactly, writes the manifest (digests of itself, of every file and tensor), and renames the folder:
// that is the commit. Older checkpoints are removed only after it. Load: pieces are read by offset after the
// digests were compared, for any number of ranks, since tensors are stored by name and element range, not by
// rank.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/core/json.h"
#include "src/core/tensor.h"

namespace temper {

/// The elements `range` of the flattened logical tensor `name`, held by this rank.
struct StateTensor {
  std::string name;  // "param/embed", "opt/m/embed", ...
  std::vector<int64_t> shape;
  FlatRange range;
  Tensor data;  // [range.size()]
};

/// `folder` is the run's checkpoints folder. `meta`: scalar state and configs, kept verbatim. All ranks call
/// it with the same step and meta. Returns the path of the new checkpoint.
std::string save_checkpoint(const std::string& folder, int64_t step, std::span<const StateTensor> state,
                            const Json& meta, Comm& comm);

/// Removes all but the newest `keep` committed checkpoints, and abandoned .tmp folders.
void remove_old_checkpoints(const std::string& folder, int64_t keep);

/// The manifest of one checkpoint, its own digest checked. Exit::data names what is wrong.
class Manifest {
 public:
  static Manifest read(const std::string& checkpoint);
  const Json& json() const { return json_; }
  const Json& meta() const { return json_.at("meta"); }
  int64_t step() const { return json_.at("step").get<int64_t>(); }
  const std::string& path() const { return path_; }

  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    DType dtype = DType::f32;
    std::string digest;
  };
  std::vector<Tensor> tensors() const;
  /// Elements [first, first + count) of a tensor; memory as wide as its dtype.
  void read_elements(const std::string& name, int64_t first, int64_t count, void* destination) const;

 private:
  Json json_;
  std::string path_;
};

struct Damage {
  std::string file, tensor, reason;
};
/// Reads everything and compares every digest; empty means sound.
std::vector<Damage> verify_checkpoint(const std::string& checkpoint);

/// Steps of the committed checkpoints in a folder, ascending.
std::vector<int64_t> list_checkpoints(const std::string& folder);

/// Fills the ranges of `state`; a missing tensor, or one of another shape or dtype, is Exit::data.
void load_state(const Manifest& manifest, std::span<const StateTensor> state);

}  // namespace temper

#pragma once
// Checkpoints: a folder step-XXXXXX with one HDF5 file per rank and a manifest written last.
// Save: every rank writes a new file in a .tmp folder and syncs it; rank 0 checks that the pieces cover every
// tensor exactly, writes the manifest (digests of itself, of every file and tensor), and renames the folder:
// that is the commit. Older checkpoints are removed only after it. Load: pieces are read by offset after the
// digests were compared, for any number of ranks, since tensors are stored by name and element range, not by
// rank. Bytes go between files and the tensors of the caller through windows of a few MiB: neither way holds
// the state twice.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/core/device.h"
#include "src/core/flat_range.h"
#include "src/core/json.h"
#include "src/core/tensor.h"
#include "src/io/manifest.h"

namespace temper {

/// The elements `range` of the flattened logical tensor `name`, held by this rank. It may hold several pieces
/// of one tensor.
struct StateTensor {
  std::string name;  // "param/embed", "opt/m/embed", ...
  std::vector<int64_t> shape;
  FlatRange range;
  Tensor data;                  // [range.size()]
  Device device = Device::cpu;  // whose memory that is; no lane has work on it
};

/// `folder` is the run's checkpoints folder. `meta`: scalar state and configs, kept verbatim. All ranks call
/// it with the same step and meta. Returns the path of the new checkpoint.
std::string save_checkpoint(const std::string& folder, int64_t step, std::span<const StateTensor> state,
                            const Json& meta, Comm& comm);

/// Removes all but the newest `keep` committed checkpoints, step folders without a manifest that are older
/// than the newest of them, and abandoned .tmp folders.
void remove_old_checkpoints(const std::string& folder, int64_t keep);

struct Damage {
  std::string file, tensor, reason;
};
/// Reads everything and compares every digest; empty means sound.
std::vector<Damage> verify_checkpoint(const std::string& checkpoint);
/// Exit::data that names the first damage, if there is any.
void require_sound(const std::string& checkpoint);

/// Steps of the step folders, ascending. One that lost its manifest is listed too: Manifest::read refuses it.
std::vector<int64_t> list_checkpoints(const std::string& folder);

/// Fills the ranges of `state`; a missing tensor, or one of another shape or dtype, is Exit::data. Ranks
/// read the shards that they need and compare the digest of each.
void load_state(const Manifest& manifest, std::span<const StateTensor> state);

}  // namespace temper

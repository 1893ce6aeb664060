#pragma once
// Checkpoints: a folder step-XXXXXX with one HDF5 file per rank and a manifest written last.
// Save: every rank writes a new file in a .tmp folder and syncs it; rank 0 checks that the pieces cover every
// tensor exactly, writes the manifest (digests of itself, of every file and tensor), and renames the folder:
// that is the commit. One of the same step is moved aside for it, and removed after it. Older checkpoints are
// removed only after it. Load: pieces are read by offset after the digests were compared, for any number of
// ranks, since tensors are stored by name and element range, not by rank. Bytes go between files and the
// tensors of the caller through windows of a few MiB: neither way holds the state twice.

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/comm/comm.h"
#include "src/core/device.h"
#include "src/core/flat_range.h"
#include "src/core/json.h"
#include "src/core/tensor.h"
#include "src/io/checkpoint/manifest.h"

namespace temper {

/// The elements `range` of the flattened logical tensor `name`, held by this rank. It may hold several pieces
/// of one tensor. Checkpoints are the same whatever a rank holds an fp32 state in: bf16 is widened when it is
/// saved, and loaded rounded to nearest even; a master in two halves (core/dtype.h) is put together and taken
/// apart, bit for bit.
struct StateTensor {
  std::string name;  // "param/embed", "opt/m/embed", ...
  std::vector<int64_t> shape;
  FlatRange range;
  Tensor data;                  // [range.size()]
  Device device = Device::cpu;  // whose memory that is; no lane has work on it
  bool as_fp32 = false;         // bf16 data is stored as fp32
  Tensor remainder = {};        // [range.size()] u16, the other half of such data; empty: there is none

  bool converted() const { return as_fp32 && data.dtype == DType::bf16; }
  DType stored_dtype() const { return converted() ? DType::f32 : data.dtype; }
  /// see(window, bytes) over the stored bytes of elements of the logical tensor, in order.
  void read(FlatRange elements, device::HostWindows& windows,
            const std::function<void(const char*, int64_t)>& see) const;
  /// fill(window, at, bytes) over them, in order; it gives the stored bytes from byte `at` on.
  void write(FlatRange elements, device::HostWindows& windows,
             const std::function<void(char*, int64_t, int64_t)>& fill) const;
};

/// Which numbers tensors of floats may hold. A run never goes on from others than finite ones.
enum class Numbers { any, finite };

struct SaveRules {
  Numbers numbers = Numbers::any;
  bool optional = false;  // a rank that cannot write ends nothing: there is no new checkpoint then
};

/// What became of a save, the same on all ranks: the path of the new checkpoint, or why there is none.
struct SaveResult {
  std::string path = {}, defect = {};
};

/// `folder` is the run's checkpoints folder. `meta`: scalar state and configs, kept verbatim. All ranks call
/// it with the same step, meta and rules. Numbers that are not finite where they have to be end it on all
/// ranks with the same Exit::numerics before the commit, a rank that cannot write with Exit::storage: what
/// was there stays.
SaveResult save_checkpoint(const std::string& folder, int64_t step, std::span<const StateTensor> state,
                           const Json& meta, Comm& comm, const SaveRules& rules = {});

/// A save that was killed while it replaced a checkpoint of its step may have left that one under a name that
/// no list has: gives it its name back, or removes it where the new one is committed.
void finish_replacing(const std::string& folder);

/// Whether a checkpoint, by its path, is kept only while it is the newest, beside `keep` others.
using IsExtra = std::function<bool(const std::string&)>;

/// Which are kept: the newest `keep` committed checkpoints, without extra ones and those of steps that stay,
/// which are beside them, and the newest in any case.
struct KeepRules {
  int64_t keep = 1;
  IsExtra is_extra = {};  // none: no checkpoint is
  std::set<int64_t> stay = {};
};
struct KeptCheckpoints {
  std::vector<int64_t> kept, old;  // steps, newest first; the second without what is newer than all committed
};
KeptCheckpoints kept_checkpoints(const std::string& folder, const KeepRules& rules);
/// Removes the old ones, step folders without a manifest among them, and abandoned .tmp folders.
void remove_old_checkpoints(const std::string& folder, const KeepRules& rules);

struct Damage {
  std::string file, tensor, reason;
};
/// Reads everything and compares every digest; empty means sound.
std::vector<Damage> verify_checkpoint(const std::string& checkpoint, Numbers numbers = Numbers::any);
/// Exit::data that names the first damage, if there is any.
void require_sound(const std::string& checkpoint, Numbers numbers = Numbers::any);

/// Steps of the step folders, ascending. One that lost its manifest is listed too: Manifest::read refuses it.
std::vector<int64_t> list_checkpoints(const std::string& folder);

/// Fills the ranges of `state`, in the types in which the rank holds them; a missing tensor, or one of
/// another shape or dtype, is Exit::data. Ranks read the shards that they need and compare the digest of
/// each.
void load_state(const Manifest& manifest, std::span<const StateTensor> state);

}  // namespace temper

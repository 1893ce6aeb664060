#include <algorithm>
#include <map>
#include <optional>

#include "src/core/check.h"
#include "src/core/digest/hash.h"
#include "src/core/file.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/io/elements.h"

namespace temper {
namespace {

constexpr int64_t kWindow = int64_t{8} << 20;

/// The files of a checkpoint, one open at a time: that of the last call.
class RankFiles {
 public:
  explicit RankFiles(std::string checkpoint) : checkpoint_(std::move(checkpoint)) {}

  bool exists(const std::string& name) const { return path_exists(join_path(checkpoint_, name)); }
  const InputFile& open(const std::string& name) {
    if (!file_ || name_ != name) {
      file_.emplace(join_path(checkpoint_, name));
      name_ = name;
    }
    return *file_;
  }
  /// Adds [offset, offset + bytes) of a file to digests, a window at a time. False: they are elements of this
  /// type, and not all are finite.
  bool digest(const std::string& name, int64_t offset, int64_t bytes, std::initializer_list<Digest*> digests,
              std::optional<DType> type = {}) {
    bool finite = true;
    window_.resize(std::max(window_.size(), static_cast<size_t>(std::min(kWindow, bytes))));
    for (int64_t at = 0; at < bytes; at += kWindow) {
      const int64_t n = std::min(kWindow, bytes - at);
      open(name).read(window_.data(), offset + at, n);
      for (Digest* d : digests) d->update(window_.data(), n);
      finite = finite && (!type || all_finite(*type, window_.data(), n));
    }
    return finite;
  }

 private:
  std::string checkpoint_, name_;
  std::optional<InputFile> file_;
  std::vector<char> window_;
};

/// What is wrong with a file as a whole; empty: nothing.
std::string file_defect(RankFiles& files, const Manifest::File& expected) {
  if (!files.exists(expected.name)) return "the file is missing";
  const int64_t size = files.open(expected.name).size();
  if (size != expected.bytes) return fmt::format("{} bytes, the manifest says {}", size, expected.bytes);
  Digest digest;
  files.digest(expected.name, 0, size, {&digest});
  return digest.hex() == expected.digest ? "" : "its digest does not match";
}

void verify_tensor(RankFiles& files, int64_t version, const std::string& name, const Manifest::Tensor& tensor,
                   Numbers numbers, std::vector<Damage>& damage) {
  Digest all_bytes;
  const std::optional<DType> type = numbers == Numbers::finite ? std::optional(tensor.dtype) : std::nullopt;
  const size_t before = damage.size();
  for (const Manifest::Shard& shard : tensor.shards) {
    const int64_t bytes = shard.count * dtype_size(tensor.dtype);
    Digest part;
    const bool readable = files.exists(shard.file) && files.open(shard.file).size() >= shard.offset + bytes;
    bool finite = true;
    if (readable && version == 1)
      finite = files.digest(shard.file, shard.offset, bytes, {&part, &all_bytes}, type);
    if (readable && version != 1) finite = files.digest(shard.file, shard.offset, bytes, {&part}, type);
    if (!readable || part.hex() != shard.digest)
      damage.push_back(
          {shard.file, name,
           fmt::format("elements from {} on are {}", shard.first, readable ? "changed" : "missing")});
    else if (!finite)
      damage.push_back(
          {shard.file, name, fmt::format("elements from {} on are not all finite", shard.first)});
  }
  const std::string whole = version == 1 ? all_bytes.hex() : digest_of_shards(tensor.shards);
  if (damage.size() == before && whole != tensor.digest)
    damage.push_back({kManifestName, name, "the digest of the whole tensor does not match"});
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t d : shape) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}

void load_tensor(const Manifest& manifest, RankFiles& files, const StateTensor& s,
                 device::HostWindows& windows) {
  const auto at = manifest.tensors().find(s.name);
  if (at == manifest.tensors().end())
    fail(Exit::data, {.what = "the checkpoint lacks a tensor",
                      .where = manifest.path(),
                      .why = s.name,
                      .fix = "use the model that the checkpoint was made with"});
  const Manifest::Tensor& t = at->second;
  if (t.shape != s.shape || t.dtype != s.stored_dtype())
    fail(Exit::data, {.what = "a tensor of the checkpoint has another shape or dtype",
                      .where = fmt::format("{}, {}", manifest.path(), s.name),
                      .why = fmt::format("{} {} there, {} {} here", dtype_name(t.dtype), shape_text(t.shape),
                                         dtype_name(s.stored_dtype()), shape_text(s.shape)),
                      .fix = "use the model and the run.dtype that the checkpoint was made with"});
  CHECK(s.data.size() == s.range.size(), "{} elements for {} of {}", s.data.size(), s.range.size(), s.name);
  const int64_t item = dtype_size(t.dtype);
  int64_t copied = 0;
  for (const Manifest::Shard& shard : t.shards) {
    const int64_t begin = std::max(s.range.begin, shard.first),
                  end = std::min(s.range.end, shard.first + shard.count);
    if (begin >= end) continue;
    Digest digest;
    files.digest(shard.file, shard.offset, shard.count * item, {&digest});
    if (digest.hex() != shard.digest)
      fail(Exit::data,
           {.what = "the checkpoint is damaged",
            .where = join_path(manifest.path(), shard.file) + ", " + s.name,
            .why = fmt::format("elements from {} on are changed", shard.first),
            .fix = "use another checkpoint; `temper verify --checkpoint DIR` lists what is wrong"});
    const int64_t offset = shard.offset + (begin - shard.first) * item;
    s.write({begin, end}, windows, [&](char* to, int64_t done, int64_t bytes) {
      files.open(shard.file).read(to, offset + done, bytes);
    });
    copied += end - begin;
  }
  CHECK(copied == s.range.size(), "elements {}..{} of {} were asked for", s.range.begin, s.range.end, s.name);
}

}  // namespace

std::vector<Damage> verify_checkpoint(const std::string& checkpoint, Numbers numbers) {
  const Manifest manifest = Manifest::read(checkpoint);
  RankFiles files(checkpoint);
  std::vector<Damage> damage;
  for (const Manifest::File& file : manifest.files())
    if (const std::string defect = file_defect(files, file); !defect.empty())
      damage.push_back({file.name, "", defect});
  for (const auto& [name, tensor] : manifest.tensors())
    verify_tensor(files, manifest.version(), name, tensor, numbers, damage);
  return damage;
}

void require_sound(const std::string& checkpoint, Numbers numbers) {
  const std::vector<Damage> damage = verify_checkpoint(checkpoint, numbers);
  if (damage.empty()) return;
  const Damage& first = damage.front();
  fail(Exit::data,
       {.what = "the checkpoint is damaged",
        .where = join_path(checkpoint, first.file) + (first.tensor.empty() ? "" : ", " + first.tensor),
        .why = first.reason,
        .fix = "use another checkpoint; `temper verify --checkpoint DIR` lists what is wrong"});
}

void load_state(const Manifest& manifest, std::span<const StateTensor> state) {
  RankFiles files(manifest.path());
  std::map<Device, device::HostWindows> windows;
  for (const StateTensor& s : state)
    load_tensor(manifest, files, s, windows.try_emplace(s.device, s.device).first->second);
}

}  // namespace temper

#include <algorithm>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/hash.h"
#include "src/io/checkpoint.h"

namespace temper {
namespace {

constexpr int64_t kWindow = int64_t{64} << 20;

/// Adds [offset, offset + bytes) of a file to digests, a window at a time.
void digest_part(const InputFile& file, int64_t offset, int64_t bytes,
                 std::initializer_list<Digest*> digests) {
  std::vector<char> window;
  for (int64_t at = 0; at < bytes; at += kWindow) {
    window.resize(static_cast<size_t>(std::min(kWindow, bytes - at)));
    file.read(window.data(), offset + at, static_cast<int64_t>(window.size()));
    for (Digest* d : digests) d->update(window.data(), static_cast<int64_t>(window.size()));
  }
}

/// What is wrong with a file as a whole; empty: nothing.
std::string file_defect(const std::string& path, const Manifest::File& expected) {
  if (!path_exists(path)) return "the file is missing";
  const InputFile file(path);
  if (file.size() != expected.bytes)
    return fmt::format("{} bytes, the manifest says {}", file.size(), expected.bytes);
  Digest digest;
  digest_part(file, 0, file.size(), {&digest});
  return digest.hex() == expected.digest ? "" : "its digest does not match";
}

void verify_tensor(const std::string& checkpoint, const std::string& name, const Manifest::Tensor& tensor,
                   std::vector<Damage>& damage) {
  Digest whole;
  const size_t before = damage.size();
  for (const Manifest::Shard& shard : tensor.shards) {
    const std::string path = join_path(checkpoint, shard.file);
    const int64_t bytes = shard.count * dtype_size(tensor.dtype);
    Digest part;
    const bool readable = path_exists(path) && InputFile(path).size() >= shard.offset + bytes;
    if (readable) digest_part(InputFile(path), shard.offset, bytes, {&whole, &part});
    if (!readable || part.hex() != shard.digest)
      damage.push_back(
          {shard.file, name,
           fmt::format("elements from {} on are {}", shard.first, readable ? "changed" : "missing")});
  }
  if (damage.size() == before && whole.hex() != tensor.digest)
    damage.push_back({kManifestName, name, "the digest of the whole tensor does not match"});
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t d : shape) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}

void load_tensor(const Manifest& manifest, const StateTensor& s) {
  const auto at = manifest.tensors().find(s.name);
  if (at == manifest.tensors().end())
    fail(Exit::data, {.what = "the checkpoint lacks a tensor",
                      .where = manifest.path(),
                      .why = s.name,
                      .fix = "use the model that the checkpoint was made with"});
  const Manifest::Tensor& t = at->second;
  if (t.shape != s.shape || t.dtype != s.data.dtype)
    fail(Exit::data, {.what = "a tensor of the checkpoint has another shape or dtype",
                      .where = fmt::format("{}, {}", manifest.path(), s.name),
                      .why = fmt::format("{} {} there, {} {} here", dtype_name(t.dtype), shape_text(t.shape),
                                         dtype_name(s.data.dtype), shape_text(s.shape)),
                      .fix = "use the model and the run.dtype that the checkpoint was made with"});
  CHECK(s.data.size() == s.range.size(), "{} elements for {} of {}", s.data.size(), s.range.size(), s.name);
  const int64_t item = dtype_size(t.dtype);
  int64_t copied = 0;
  for (const Manifest::Shard& shard : t.shards) {
    const int64_t begin = std::max(s.range.begin, shard.first),
                  end = std::min(s.range.end, shard.first + shard.count);
    if (begin >= end) continue;
    InputFile(join_path(manifest.path(), shard.file))
        .read(static_cast<char*>(s.data.raw()) + (begin - s.range.begin) * item,
              shard.offset + (begin - shard.first) * item, (end - begin) * item);
    copied += end - begin;
  }
  CHECK(copied == s.range.size(), "elements {}..{} of {} were asked for", s.range.begin, s.range.end, s.name);
}

}  // namespace

std::vector<Damage> verify_checkpoint(const std::string& checkpoint) {
  const Manifest manifest = Manifest::read(checkpoint);
  std::vector<Damage> damage;
  for (const Manifest::File& file : manifest.files())
    if (const std::string defect = file_defect(join_path(checkpoint, file.name), file); !defect.empty())
      damage.push_back({file.name, "", defect});
  for (const auto& [name, tensor] : manifest.tensors()) verify_tensor(checkpoint, name, tensor, damage);
  return damage;
}

void require_sound(const std::string& checkpoint) {
  const std::vector<Damage> damage = verify_checkpoint(checkpoint);
  if (damage.empty()) return;
  const Damage& first = damage.front();
  fail(Exit::data,
       {.what = "the checkpoint is damaged",
        .where = join_path(checkpoint, first.file) + (first.tensor.empty() ? "" : ", " + first.tensor),
        .why = first.reason,
        .fix = "use another checkpoint; `temper verify --checkpoint DIR` lists what is wrong"});
}

void load_state(const Manifest& manifest, std::span<const StateTensor> state) {
  for (const StateTensor& s : state) load_tensor(manifest, s);
}

}  // namespace temper

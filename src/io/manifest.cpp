#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/hash.h"
#include "src/io/checkpoint.h"

namespace temper {
namespace {

constexpr int64_t kWindow = int64_t{64} << 20;
constexpr JsonLimits kManifestLimits{.depth = 16, .bytes = int64_t{1} << 30};

[[noreturn]] void damaged(const std::string& where, const std::string& why) {
  fail(Exit::data, {.what = "the checkpoint is damaged",
                    .where = where,
                    .why = why,
                    .fix = "use another checkpoint; `temper verify --checkpoint DIR` lists what is wrong"});
}

DType dtype_of(const std::string& name, const std::string& where) {
  for (DType t : {DType::f32, DType::f64, DType::bf16})
    if (name == dtype_name(t)) return t;
  damaged(where, fmt::format("unknown dtype {}", name));
}

/// A file name of the manifest, which must stay inside of the checkpoint.
std::string inner_path(const std::string& folder, const Json& name) {
  const std::string text = name.get<std::string>();
  if (text.empty() || text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") != std::string::npos ||
      text[0] == '.')
    damaged(folder, fmt::format("file name {}", name.dump()));
  return join_path(folder, text);
}

/// Digest of [offset, offset + bytes) of a file, a window at a time.
std::string digest_of(const InputFile& file, int64_t offset, int64_t bytes) {
  Digest digest;
  std::vector<char> window;
  for (int64_t at = 0; at < bytes; at += kWindow) {
    window.resize(static_cast<size_t>(std::min(kWindow, bytes - at)));
    file.read(window.data(), offset + at, static_cast<int64_t>(window.size()));
    digest.update(window.data(), static_cast<int64_t>(window.size()));
  }
  return digest.hex();
}

}  // namespace

Manifest Manifest::read(const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, "manifest.json");
  if (!path_exists(path))
    fail(path_exists(checkpoint) ? Exit::data : Exit::usage,
         {.what = "not a checkpoint",
          .where = checkpoint,
          .why = "it has no manifest.json",
          .fix = "name a step folder (checkpoints/step-XXXXXX) or a run folder"});
  Manifest manifest;
  manifest.path_ = checkpoint;
  manifest.json_ = read_json_file(path, kManifestLimits);
  Json body = manifest.json_;
  if (!body.is_object() || !body.contains("digest") || !body["digest"].is_string())
    damaged(path, "it has no digest of itself");
  const std::string written = body["digest"].get<std::string>();
  body.erase("digest");
  const std::string text = body.dump();
  if (digest_hex(text.data(), static_cast<int64_t>(text.size())) != written)
    damaged(path, "its digest does not match its content");
  if (body.value("format", "") != "temper-checkpoint" || body.value("version", 0) != 1)
    damaged(path, fmt::format("format {} version {}, this program reads temper-checkpoint version 1",
                              body.value("format", "?"), body.value("version", 0)));
  return manifest;
}

std::vector<Manifest::Tensor> Manifest::tensors() const {
  std::vector<Tensor> list;
  for (const auto& [name, t] : json_.at("tensors").items())
    list.push_back({name, t.at("shape").get<std::vector<int64_t>>(),
                    dtype_of(t.at("dtype").get<std::string>(), name), t.at("digest").get<std::string>()});
  return list;
}

void Manifest::read_elements(const std::string& name, int64_t first, int64_t count, void* destination) const {
  const auto at = json_.at("tensors").find(name);
  if (at == json_.at("tensors").end())
    fail(Exit::data, {.what = "the checkpoint lacks a tensor", .where = path_, .why = name});
  const int64_t item = dtype_size(dtype_of(at->at("dtype").get<std::string>(), name));
  auto* out = static_cast<char*>(destination);
  for (const Json& shard : at->at("shards")) {
    const int64_t begin = std::max(first, shard.at("first").get<int64_t>());
    const int64_t end =
        std::min(first + count, shard.at("first").get<int64_t>() + shard.at("count").get<int64_t>());
    if (begin >= end) continue;
    const InputFile file(inner_path(path_, shard.at("file")));
    file.read(out + (begin - first) * item,
              shard.at("offset").get<int64_t>() + (begin - shard.at("first").get<int64_t>()) * item,
              (end - begin) * item);
  }
}

std::vector<Damage> verify_checkpoint(const std::string& checkpoint) {
  std::vector<Damage> damage;
  const Manifest manifest = Manifest::read(checkpoint);
  for (const Json& f : manifest.json().at("files")) {
    const std::string name = f.at("name").get<std::string>(), path = inner_path(checkpoint, f.at("name"));
    if (!path_exists(path)) {
      damage.push_back({name, "", "the file is missing"});
      continue;
    }
    const InputFile file(path);
    if (file.size() != f.at("bytes").get<int64_t>()) {
      damage.push_back(
          {name, "",
           fmt::format("{} bytes, the manifest says {}", file.size(), f.at("bytes").get<int64_t>())});
      continue;
    }
    if (digest_of(file, 0, file.size()) != f.at("digest").get<std::string>())
      damage.push_back({name, "", "its digest does not match"});
  }
  if (damage.empty()) return damage;
  for (const auto& [tensor, t] : manifest.json().at("tensors").items())
    for (const Json& shard : t.at("shards")) {
      const std::string name = shard.at("file").get<std::string>(),
                        path = inner_path(checkpoint, shard.at("file"));
      const int64_t offset = shard.at("offset").get<int64_t>();
      const int64_t bytes =
          shard.at("count").get<int64_t>() * dtype_size(dtype_of(t.at("dtype").get<std::string>(), tensor));
      const bool readable = path_exists(path) && InputFile(path).size() >= offset + bytes;
      if (!readable || digest_of(InputFile(path), offset, bytes) != shard.at("digest").get<std::string>())
        damage.push_back({name, tensor,
                          fmt::format("elements from {} on are {}", shard.at("first").get<int64_t>(),
                                      readable ? "changed" : "missing")});
    }
  return damage;
}

void load_state(const Manifest& manifest, std::span<const StateTensor> state) {
  std::map<std::string, Manifest::Tensor> table;
  for (Manifest::Tensor& t : manifest.tensors()) table[t.name] = t;
  for (const StateTensor& s : state) {
    const auto at = table.find(s.name);
    if (at == table.end())
      fail(Exit::data, {.what = "the checkpoint lacks a tensor", .where = manifest.path(), .why = s.name});
    if (at->second.shape != s.shape || at->second.dtype != s.data.dtype)
      fail(Exit::data,
           {.what = "a tensor of the checkpoint has another shape or dtype",
            .where = fmt::format("{}, {}", manifest.path(), s.name),
            .why = fmt::format("{} with {} dimensions there, {} with {} here", dtype_name(at->second.dtype),
                               at->second.shape.size(), dtype_name(s.data.dtype), s.shape.size()),
            .fix = "resume with the model and run.dtype that the checkpoint was made with"});
    manifest.read_elements(s.name, s.range.begin, s.range.size(), s.data.raw());
  }
}

}  // namespace temper

#include "src/io/checkpoint/manifest.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/core/check.h"
#include "src/core/digest/hash.h"
#include "src/core/file.h"
#include "src/core/reachable.h"

namespace temper {
namespace {

constexpr JsonLimits kManifestLimits{.depth = 16, .bytes = int64_t{1} << 30};
constexpr int64_t kMaxCount = int64_t{1} << 53;

/// One value of the manifest and its place, for messages: "tensors.param/embed.shards[1].offset".
class Field {
 public:
  Field(const Json& value, std::string file, std::string key)
      : value_(value), file_(std::move(file)), key_(std::move(key)) {}

  Field at(const std::string& key) const {
    if (!value_.is_object()) refuse(shown() + " is not an object");
    const auto member = value_.find(key);
    const Field place(value_, file_, key_.empty() ? key : key_ + "." + key);
    if (member == value_.end()) place.refuse("the key is missing");
    return Field(*member, file_, place.key_);
  }
  template <class Use>  // use(field) for each element
  void each(Use&& use) const {
    if (!value_.is_array()) refuse(shown() + " is not an array");
    for (size_t i = 0; i < value_.size(); ++i) use(Field(value_[i], file_, fmt::format("{}[{}]", key_, i)));
  }
  template <class Use>  // use(name, field) for each member
  void each_member(Use&& use) const {
    if (!value_.is_object()) refuse(shown() + " is not an object");
    for (const auto& [name, member] : value_.items()) use(name, Field(member, file_, key_ + "." + name));
  }
  int64_t count(int64_t limit = kMaxCount) const {
    const bool fits =
        value_.is_number_integer() && (value_.is_number_unsigned() || value_.get<int64_t>() >= 0);
    if (!fits || value_.get<uint64_t>() > static_cast<uint64_t>(limit))
      refuse(fmt::format("{} is not an integer from 0 to {}", shown(), limit));
    return value_.get<int64_t>();
  }
  std::string text() const {
    if (!value_.is_string()) refuse(shown() + " is not a string");
    return value_.get<std::string>();
  }
  std::string digest() const {
    const std::string hex = text();
    if (hex.size() != 32 || hex.find_first_not_of("0123456789abcdef") != std::string::npos)
      refuse(shown() + " is not a digest of 32 hexadecimal digits");
    return hex;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    const std::string key = Json(key_.substr(0, 400)).dump(-1, ' ', true, Json::error_handler_t::replace);
    fail(Exit::data, {.what = "the manifest of a checkpoint is damaged",
                      .where = key_.empty() ? file_ : file_ + ": " + key.substr(1, key.size() - 2),
                      .why = why,
                      .fix = "use another checkpoint; `temper verify --checkpoint DIR` lists what is wrong"});
  }
  std::string shown() const {
    const std::string all = value_.is_structured()
                                ? (value_.is_array() ? "an array" : "an object")
                                : value_.dump(-1, ' ', true, Json::error_handler_t::replace);
    return all.size() > 120 ? all.substr(0, 120) + "..." : all;
  }

 private:
  const Json& value_;
  std::string file_, key_;
};

/// The digest is that of the document without it.
void check_own_digest(const Json& json, const Field& root) {
  const std::string written = root.at("digest").digest();
  Json body = json;
  body.erase("digest");
  const std::string text = body.dump();
  if (digest_hex(text.data(), static_cast<int64_t>(text.size())) != written)
    root.at("digest").refuse("it does not match the content");
}

Manifest::File read_file_entry(const Field& f) {
  Manifest::File file{f.at("name").text(), f.at("bytes").count(), f.at("digest").digest()};
  const bool plain =
      file.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
  if (file.name.empty() || file.name[0] == '.' || !plain || file.name == kManifestName)
    f.at("name").refuse(f.at("name").shown() + " is not the name of a rank's file, like rank-0000.h5");
  return file;
}

DType read_dtype(const Field& f) {
  const std::string name = f.text();
  for (DType t : kStoredTypes)
    if (name == dtype_name(t)) return t;
  f.refuse(f.shown() + " is not fp32, fp64, bf16 or i32");
}

/// Checks that the shard lies inside of its file.
Manifest::Shard read_shard(const Field& f, int64_t item, const std::map<std::string, int64_t>& file_bytes) {
  Manifest::Shard shard;
  shard.file = f.at("file").text();
  const auto file = file_bytes.find(shard.file);
  if (file == file_bytes.end()) f.at("file").refuse(f.at("file").shown() + " is not one of \"files\"");
  shard.offset = f.at("offset").count(file->second);
  shard.count = f.at("count").count((file->second - shard.offset) / item);
  shard.first = f.at("first").count();
  shard.digest = f.at("digest").digest();
  return shard;
}

Manifest::Tensor read_tensor(const Field& f, const std::map<std::string, int64_t>& file_bytes) {
  Manifest::Tensor t;
  t.dtype = read_dtype(f.at("dtype"));
  t.digest = f.at("digest").digest();
  int64_t elements = 1, covered = 0;
  f.at("shape").each([&](const Field& d) {
    t.shape.push_back(d.count(elements > 0 ? kMaxCount / elements : kMaxCount));
    elements *= t.shape.back();
  });
  f.at("shards").each([&](const Field& s) {
    t.shards.push_back(read_shard(s, dtype_size(t.dtype), file_bytes));
    if (t.shards.back().first != covered)
      s.at("first").refuse(
          fmt::format("{}, but the shards before it end at {}", t.shards.back().first, covered));
    covered += t.shards.back().count;
  });
  if (covered != elements)
    f.at("shards").refuse(fmt::format("they hold {} elements, the shape has {}", covered, elements));
  return t;
}

}  // namespace

Manifest Manifest::read(const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, kManifestName);
  require_reachable(path);
  if (!path_exists(path))
    fail(path_exists(checkpoint) ? Exit::data : Exit::usage,
         {.what = "not a checkpoint",
          .where = checkpoint,
          .why = fmt::format("it has no {}, which a save writes last: the save was cut, or it was removed",
                             kManifestName),
          .fix = "name another step folder (checkpoints/step-XXXXXX) or a run folder"});
  const Json json = read_json_file(path, kManifestLimits);
  const Field root(json, path, "");
  check_own_digest(json, root);
  if (root.at("format").text() != kManifestFormat)
    root.at("format").refuse(
        fmt::format("{}; this program reads {}", root.at("format").shown(), kManifestFormat));
  Manifest manifest;
  manifest.path_ = checkpoint;
  manifest.version_ = root.at("version").count();
  if (manifest.version_ < 1 || manifest.version_ > kManifestVersion)
    root.at("version").refuse(
        fmt::format("version {}; this program reads versions 1 to {}", manifest.version_, kManifestVersion));
  manifest.step_ = root.at("step").count();
  const std::string folder = std::filesystem::path(checkpoint).lexically_normal().filename().string();
  const bool numbered = folder.starts_with("step-") && folder.size() > 5 &&
                        folder.find_first_not_of("0123456789", 5) == std::string::npos;
  if (numbered && folder != step_name(manifest.step_))
    root.at("step").refuse(
        fmt::format("step {}, and the folder is called {}: it was renamed, or copied over "
                    "another one; give it the name {}",
                    manifest.step_, folder, step_name(manifest.step_)));
  std::map<std::string, int64_t> file_bytes;
  root.at("files").each([&](const Field& f) {
    manifest.files_.push_back(read_file_entry(f));
    if (!file_bytes.emplace(manifest.files_.back().name, manifest.files_.back().bytes).second)
      f.at("name").refuse(f.at("name").shown() + " is named twice");
  });
  root.at("tensors").each_member(
      [&](const std::string& name, const Field& f) { manifest.tensors_[name] = read_tensor(f, file_bytes); });
  root.at("meta").each_member([](const std::string&, const Field&) {});
  manifest.meta_ = json.at("meta");
  return manifest;
}

std::string Manifest::meta_text(const std::string& key) const {
  return Field(meta_, join_path(path_, kManifestName), "meta").at(key).text();
}

int64_t Manifest::meta_count(const std::string& key) const {
  return Field(meta_, join_path(path_, kManifestName), "meta").at(key).count();
}

std::string digest_of_shards(const std::vector<Manifest::Shard>& shards) {
  Digest digest;
  for (const Manifest::Shard& s : shards) {
    const std::string line = fmt::format("{} {} {}\n", s.first, s.count, s.digest);
    digest.update(line.data(), static_cast<int64_t>(line.size()));
  }
  return digest.hex();
}

}  // namespace temper

#pragma once
// The manifest of one checkpoint as typed data. `read` checks everything that the file alone can tell: its
// own digest, every key and type, sizes, names that stay inside of the folder, shards that lie inside of
// their files and cover each tensor exactly once. Whether the files are as it says is verify_checkpoint's to
// find.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/dtype.h"
#include "src/core/json.h"

namespace temper {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kManifestFormat = "temper-checkpoint";
/// Version 1 is read too; only the digests of tensors differ.
inline constexpr int64_t kManifestVersion = 2;
/// Types that checkpoints store (i32: groups as words).
inline constexpr std::array kStoredTypes{DType::f32, DType::f64, DType::bf16, DType::i32};

class Manifest {
 public:
  struct File {
    std::string name;
    int64_t bytes = 0;
    std::string digest;
  };
  /// Elements [first, first + count) of a flattened tensor, at a byte offset of a file.
  struct Shard {
    std::string file;
    int64_t first = 0, count = 0, offset = 0;
    std::string digest;
  };
  struct Tensor {
    std::vector<int64_t> shape;
    DType dtype = DType::f32;
    std::string digest;         // digest_of_shards; in version 1 that of the bytes
    std::vector<Shard> shards;  // ascending, without gaps
  };

  /// Exit::data names the file, the key and what is wrong with it; a path that does not exist is Exit::usage.
  static Manifest read(const std::string& checkpoint);

  const std::string& path() const { return path_; }
  int64_t version() const { return version_; }
  int64_t step() const { return step_; }
  const std::vector<File>& files() const { return files_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  /// Scalars that the run keeps; a missing key or another type is Exit::data. Counts are 0 to 2^53.
  std::string meta_text(const std::string& key) const;
  bool has_meta(const std::string& key) const { return meta_.contains(key); }
  int64_t meta_count(const std::string& key) const;

 private:
  std::string path_;
  int64_t version_ = 0, step_ = 0;
  std::vector<File> files_;
  std::map<std::string, Tensor> tensors_;
  Json meta_;
};

/// The digest of a tensor: that of the lines "first count digest" of its shards. It follows from what every
/// rank tells of its own bytes, so nobody reads what others wrote.
std::string digest_of_shards(const std::vector<Manifest::Shard>& shards);

}  // namespace temper

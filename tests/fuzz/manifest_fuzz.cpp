// The manifest of a checkpoint, as it is and with its own digest put right: who writes one can sign it. What
// is taken is consistent in itself.

#include "src/core/digest/hash.h"
#include "src/io/checkpoint/manifest.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

std::string with_digest(std::string_view input) {
  Json json = parse_json(input, "input");
  if (!json.is_object()) return {};
  json.erase("digest");
  const std::string body = json.dump();
  json["digest"] = digest_hex(body.data(), std::ssize(body));
  return json.dump();
}

void read(std::string_view content) {
  input_file(kManifestName, content);
  const Manifest manifest = Manifest::read(input_folder());
  for (const auto& [name, tensor] : manifest.tensors()) {
    int64_t elements = 1, shards = 0;
    for (const int64_t d : tensor.shape) elements *= d;
    for (const Manifest::Shard& shard : tensor.shards) shards += shard.count;
    require(elements == shards && elements >= 0, "a tensor of another size than its shards");
    digest_of_shards(tensor.shards);
  }
  for (const char* key : {"format", "config"}) takes([&] { manifest.meta_text(key); });
  for (const char* key : {"step", "data_position"})
    takes([&] { require(manifest.meta_count(key) >= 0, key); });
}

}  // namespace

void fuzz(std::string_view input) {
  takes([&] { read(input); });
  takes([&] { read(with_digest(input)); });
}

}  // namespace temper

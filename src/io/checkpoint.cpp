#include "src/io/checkpoint.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/hash.h"
#include "src/io/hdf5_image.h"

namespace temper {
namespace {

constexpr int64_t kWindow = int64_t{64} << 20;

std::string step_folder(int64_t step) { return fmt::format("step-{:06d}", step); }

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

int64_t item_size(const std::string& name) {
  for (DType t : kStoredTypes)
    if (name == dtype_name(t)) return dtype_size(t);
  CHECK(false, "{} is no dtype of checkpoints", name);
}

/// Writes this rank's file; returns its entry of the manifest.
Json write_rank_file(const std::string& folder, int rank, std::span<const StateTensor> state) {
  std::vector<Hdf5Dataset> datasets;
  for (const StateTensor& s : state) datasets.push_back({"/" + s.name, s.data, s.range.begin, s.shape});
  const Hdf5Image image = make_hdf5_image(datasets);
  const std::string name = fmt::format("rank-{:04d}.h5", rank);
  OutputFile file(join_path(folder, name), OutputFile::Mode::create_new);
  file.write(image.bytes.data(), static_cast<int64_t>(image.bytes.size()));
  file.close();
  Json entry = {{"name", name},
                {"bytes", image.bytes.size()},
                {"digest", digest_hex(image.bytes.data(), static_cast<int64_t>(image.bytes.size()))},
                {"pieces", Json::array()}};
  for (size_t i = 0; i < state.size(); ++i)
    entry["pieces"].push_back({{"tensor", state[i].name},
                               {"shape", state[i].shape},
                               {"dtype", dtype_name(state[i].data.dtype)},
                               {"first", state[i].range.begin},
                               {"count", state[i].range.size()},
                               {"offset", image.offsets[i]},
                               {"digest", digest_hex(state[i].data.data, state[i].data.bytes())}});
  return entry;
}

/// Table of logical tensors from the pieces of all files; their pieces must cover each exactly once.
Json tensor_table(const Json& files) {
  std::map<std::string, Json> tensors;
  for (const Json& file : files)
    for (const Json& piece : file.at("pieces")) {
      Json& t = tensors[piece.at("tensor").get<std::string>()];
      if (t.is_null())
        t = {{"shape", piece.at("shape")}, {"dtype", piece.at("dtype")}, {"shards", Json::array()}};
      CHECK(t.at("shape") == piece.at("shape") && t.at("dtype") == piece.at("dtype"),
            "ranks disagree about {}", piece.at("tensor").dump());
      t["shards"].push_back({{"file", file.at("name")},
                             {"first", piece.at("first")},
                             {"count", piece.at("count")},
                             {"offset", piece.at("offset")},
                             {"digest", piece.at("digest")}});
    }
  Json table = Json::object();
  for (auto& [name, t] : tensors) {
    auto& shards = t["shards"];
    std::sort(shards.begin(), shards.end(),
              [](const Json& a, const Json& b) { return a.at("first") < b.at("first"); });
    int64_t covered = 0;
    for (const Json& shard : shards) {
      CHECK(shard.at("first").get<int64_t>() == covered, "elements from {} of {} are missing or doubled",
            covered, name);
      covered += shard.at("count").get<int64_t>();
    }
    CHECK(covered == count_of(t.at("shape").get<std::vector<int64_t>>()), "{} elements of {} were given",
          covered, name);
    table[name] = t;
  }
  return table;
}

/// Digest of the logical bytes. A tensor of one shard has it already; the shards of another are read back in
/// order.
void add_tensor_digests(const std::string& folder, Json& table) {
  std::vector<char> window;
  for (auto& [name, t] : table.items()) {
    if (t.at("shards").size() == 1) {
      t["digest"] = t.at("shards")[0].at("digest");
      continue;
    }
    const int64_t item = item_size(t.at("dtype").get<std::string>());
    Digest digest;
    for (const Json& shard : t.at("shards")) {
      const InputFile file(join_path(folder, shard.at("file").get<std::string>()), Exit::storage);
      const int64_t bytes = shard.at("count").get<int64_t>() * item,
                    offset = shard.at("offset").get<int64_t>();
      for (int64_t at = 0; at < bytes; at += kWindow) {
        window.resize(static_cast<size_t>(std::min(kWindow, bytes - at)));
        file.read(window.data(), offset + at, static_cast<int64_t>(window.size()));
        digest.update(window.data(), static_cast<int64_t>(window.size()));
      }
    }
    t["digest"] = digest.hex();
  }
}

void write_manifest(const std::string& folder, Json manifest) {
  const std::string body = manifest.dump();
  manifest["digest"] = digest_hex(body.data(), static_cast<int64_t>(body.size()));
  write_file_atomic(join_path(folder, kManifestName), manifest.dump() + "\n");
}

}  // namespace

std::string save_checkpoint(const std::string& folder, int64_t step, std::span<const StateTensor> state,
                            const Json& meta, Comm& comm) {
  const std::string final_path = join_path(folder, step_folder(step)), temporary = final_path + ".tmp";
  if (comm.rank() == 0) {
    if (path_exists(temporary)) remove_tree(temporary);
    make_directories(temporary);
  }
  comm.barrier("checkpoint folder made by rank 0");
  const Json mine = write_rank_file(temporary, comm.rank(), state);
  const std::vector<std::string> entries = comm.all_gather(mine.dump(), "checkpoint file digests, copied");
  if (comm.rank() == 0) {
    Json files = Json::array();
    for (const std::string& text : entries) files.push_back(Json::parse(text));
    Json table = tensor_table(files);
    add_tensor_digests(temporary, table);
    for (Json& file : files) file.erase("pieces");
    sync_directory(temporary);
    write_manifest(temporary, {{"format", kManifestFormat},
                               {"version", kManifestVersion},
                               {"step", step},
                               {"layout", {{"dp", comm.size()}}},
                               {"files", files},
                               {"tensors", table},
                               {"meta", meta}});
    if (path_exists(final_path)) remove_tree(final_path);
    rename_path(temporary, final_path);
  }
  comm.barrier("checkpoint committed by rank 0");
  return final_path;
}

std::vector<int64_t> list_checkpoints(const std::string& folder) {
  std::vector<int64_t> steps;
  if (!is_directory(folder)) return steps;
  for (const std::string& name : list_directory(folder)) {
    const bool digits = name.starts_with("step-") && name.size() >= 11 && name.size() <= 20 &&
                        name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (!digits) continue;
    const int64_t step = std::stoll(name.substr(5));
    if (name == step_folder(step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void remove_old_checkpoints(const std::string& folder, int64_t keep) {
  std::vector<int64_t> steps = list_checkpoints(folder);
  std::reverse(steps.begin(), steps.end());
  int64_t committed = 0;
  for (int64_t step : steps) {
    const std::string path = join_path(folder, step_folder(step)), manifest = join_path(path, kManifestName);
    const bool whole = path_exists(manifest);
    if (committed == 0 && !whole) continue;  // newer than all that is known to be good: not ours to judge
    committed += whole;
    if (whole && committed <= keep) continue;
    // Without its manifest a folder is no checkpoint: a removal that is cut short leaves nothing half valid.
    if (whole) remove_tree(manifest);
    remove_tree(path);
  }
  for (const std::string& name : list_directory(folder))
    if (name.starts_with("step-") && name.ends_with(".tmp")) remove_tree(join_path(folder, name));
}

}  // namespace temper

#include "src/io/checkpoint/checkpoint.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/core/digest/hash.h"
#include "src/core/file.h"
#include "src/io/checkpoint/hdf5_layout.h"
#include "src/io/elements.h"

namespace temper {
namespace {

/// Digests of a tensor's bytes are taken over runs of this many elements, counted from its first one (16 MiB
/// of fp32). Whatever ranks hold it, a run that one of them holds whole has the same digest.
constexpr int64_t kDigestRun = int64_t{4} << 20;
constexpr const char* kReplaced = ".replaced";  // behind the name of one that a new one takes the place of
constexpr int64_t kWindow = int64_t{1} << 20;   // bytes; stays in the cache from the digests to the write

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

/// This rank's file, written front to back. Its digest is taken on the way.
class RankFile {
 public:
  explicit RankFile(const std::string& path) : file_(path, OutputFile::Mode::create_new) {}

  /// The bytes go into `part` too.
  void write_data(const char* from, int64_t bytes, Digest& part) {
    for (int64_t at = 0; at < bytes; at += kWindow) {
      const int64_t n = std::min(kWindow, bytes - at);
      part.update(from + at, n);
      write(from + at, n);
    }
  }
  /// What the layout has from here to `end`.
  void write_metadata(const SparseBytes& metadata, int64_t end) {
    CHECK(written() <= end, "byte {} of a file comes after byte {}", end, written());
    std::vector<char> window(static_cast<size_t>(std::min(kWindow, end - written())));
    while (written() < end) {
      const int64_t n = std::min(kWindow, end - written());
      metadata.read(written(), window.data(), n);
      write(window.data(), n);
    }
  }
  void close() { file_.close(); }
  int64_t written() const { return file_.written(); }
  std::string digest() const { return digest_.hex(); }

 private:
  void write(const char* from, int64_t bytes) {
    digest_.update(from, bytes);
    file_.write(from, bytes);
  }

  OutputFile file_;
  Digest digest_;
};

/// Paths are the tensors' names; of several pieces of one tensor each has its first element in its path.
std::vector<Hdf5Dataset> datasets_of(std::span<const StateTensor> state) {
  std::map<std::string, int> pieces;
  for (const StateTensor& s : state) ++pieces[s.name];
  std::vector<Hdf5Dataset> datasets;
  for (const StateTensor& s : state) {
    const std::string suffix = pieces.at(s.name) > 1 ? fmt::format("@{}", s.range.begin) : "";
    datasets.push_back({"/" + s.name + suffix, s.stored_dtype(), s.range.size(), s.range.begin, s.shape});
  }
  return datasets;
}

[[noreturn]] void refuse_numbers(const std::string& where) {
  fail(Exit::numerics,
       {.what = "a checkpoint was not written: its numbers are not finite",
        .where = where,
        .why = "weights or moments of the optimizer are infinite or no numbers: nothing can go on from them",
        .fix = "the last good checkpoint is as it was: start again from it with a lower optimizer.lr"});
}

/// Appends the piece; returns its shards: one for each run that it has a part of.
Json write_piece(RankFile& file, const StateTensor& s, device::HostWindows& windows, Numbers numbers) {
  CHECK(s.data.size() == s.range.size(), "{} elements for {} of {}", s.data.size(), s.range.size(), s.name);
  Json shards = Json::array();
  for (int64_t first = s.range.begin, end = first; first < s.range.end; first = end) {
    end = std::min(s.range.end, (first / kDigestRun + 1) * kDigestRun);
    const int64_t offset = file.written();
    Digest digest;
    s.read({first, end}, windows, [&](const char* from, int64_t bytes) {
      if (numbers == Numbers::finite && !all_finite(s.stored_dtype(), from, bytes))
        refuse_numbers(fmt::format("{}, elements from {} on", s.name, first));
      file.write_data(from, bytes, digest);
    });
    shards.push_back(
        {{"first", first}, {"count", end - first}, {"offset", offset}, {"digest", digest.hex()}});
  }
  return shards;
}

Json piece_entry(const StateTensor& s, Json shards) {
  return {{"tensor", s.name},
          {"shape", s.shape},
          {"dtype", dtype_name(s.stored_dtype())},
          {"shards", std::move(shards)}};
}

/// Writes this rank's file; returns its entry of the manifest, with "pieces". Empty pieces have no dataset.
Json write_rank_file(const std::string& folder, int rank, std::span<const StateTensor> state,
                     Numbers numbers) {
  Json pieces = Json::array();
  std::vector<StateTensor> held;
  for (const StateTensor& s : state)
    if (s.range.size() > 0)
      held.push_back(s);
    else
      pieces.push_back(piece_entry(s, Json::array()));
  const Hdf5Layout layout = lay_out_hdf5(datasets_of(held));
  std::map<int64_t, const StateTensor*> by_offset;
  for (size_t i = 0; i < held.size(); ++i) by_offset[layout.offsets[i]] = &held[i];
  const std::string name = fmt::format("rank-{:04d}.h5", rank);
  RankFile file(join_path(folder, name));
  std::map<Device, device::HostWindows> windows;
  for (const auto& [offset, s] : by_offset) {
    file.write_metadata(layout.metadata, offset);
    device::HostWindows& through = windows.try_emplace(s->device, s->device).first->second;
    pieces.push_back(piece_entry(*s, write_piece(file, *s, through, numbers)));
  }
  file.write_metadata(layout.metadata, layout.bytes);
  file.close();
  return {
      {"name", name}, {"bytes", file.written()}, {"digest", file.digest()}, {"pieces", std::move(pieces)}};
}

/// Checks that the shards, ascending, cover `count` elements exactly.
void check_cover(const std::string& name, const std::vector<Manifest::Shard>& shards, int64_t count) {
  int64_t covered = 0;
  for (const Manifest::Shard& shard : shards) {
    CHECK(shard.first == covered, "elements from {} of {} are missing or doubled", covered, name);
    covered += shard.count;
  }
  CHECK(covered == count, "{} elements of {} were given", covered, name);
}

/// Table of logical tensors from the pieces of all files; their pieces must cover each exactly once.
Json tensor_table(const Json& files) {
  struct Entry {
    Json shape, dtype;
    std::vector<Manifest::Shard> shards;
  };
  std::map<std::string, Entry> tensors;
  for (const Json& file : files)
    for (const Json& piece : file.at("pieces")) {
      Entry& t = tensors[piece.at("tensor").get<std::string>()];
      if (t.shape.is_null()) t = {piece.at("shape"), piece.at("dtype"), {}};
      CHECK(t.shape == piece.at("shape") && t.dtype == piece.at("dtype"), "ranks disagree about {}",
            piece.at("tensor").dump());
      for (const Json& s : piece.at("shards"))
        t.shards.push_back({file.at("name").get<std::string>(), s.at("first").get<int64_t>(),
                            s.at("count").get<int64_t>(), s.at("offset").get<int64_t>(),
                            s.at("digest").get<std::string>()});
    }
  Json table = Json::object();
  for (auto& [name, t] : tensors) {
    std::sort(t.shards.begin(), t.shards.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    check_cover(name, t.shards, count_of(t.shape.get<std::vector<int64_t>>()));
    Json shards = Json::array();
    for (const Manifest::Shard& s : t.shards)
      shards.push_back({{"file", s.file},
                        {"first", s.first},
                        {"count", s.count},
                        {"offset", s.offset},
                        {"digest", s.digest}});
    table[name] = {{"shape", t.shape},
                   {"dtype", t.dtype},
                   {"digest", digest_of_shards(t.shards)},
                   {"shards", std::move(shards)}};
  }
  return table;
}

void write_manifest(const std::string& folder, Json manifest) {
  const std::string body = manifest.dump();
  manifest["digest"] = digest_hex(body.data(), static_cast<int64_t>(body.size()));
  write_file_atomic(join_path(folder, kManifestName), manifest.dump() + "\n");
}

/// At every instant one of the two has a name that a start finds, or takes back.
void commit(const std::string& temporary, const std::string& final_path) {
  const std::string aside = final_path + kReplaced;
  if (path_exists(aside)) remove_tree(aside);
  if (path_exists(final_path)) rename_path(final_path, aside);
  rename_path(temporary, final_path);
  if (path_exists(aside)) remove_tree(aside);
}

/// What keeps `work` from being done, where that need not end the run; empty: nothing.
template <class Work>
std::string defect_of(const SaveRules& rules, const Work& work) {
  try {
    work();
    return "";
  } catch (const Error& e) {
    if (!rules.optional || e.code() != Exit::storage) throw;
    return e.what();
  }
}

/// Writes this rank's file; returns its entry, or what all ranks have to know instead: "defect", why there is
/// no file where that need not end the run, or "not_finite", the place of a number that nothing can go on
/// from.
Json rank_entry(const std::string& folder, int rank, std::span<const StateTensor> state,
                const SaveRules& rules) {
  Json entry;
  try {
    const std::string defect =
        defect_of(rules, [&] { entry = write_rank_file(folder, rank, state, rules.numbers); });
    return defect.empty() ? entry : Json{{"defect", defect}};
  } catch (const Error& e) {
    if (e.code() != Exit::numerics) throw;
    return {{"not_finite", e.problem().where}};
  }
}

/// Rank 0: the manifest of what all ranks wrote, and the new name of the folder.
void finish_checkpoint(const std::string& temporary, const std::string& final_path, int64_t step, Json files,
                       const Json& meta) {
  Json table = tensor_table(files);
  for (Json& file : files) file.erase("pieces");
  sync_directory(temporary);
  const auto ranks = files.size();
  write_manifest(temporary, {{"format", kManifestFormat},
                             {"version", kManifestVersion},
                             {"step", step},
                             {"layout", {{"dp", ranks}}},
                             {"files", std::move(files)},
                             {"tensors", table},
                             {"meta", meta}});
  commit(temporary, final_path);
}

}  // namespace

SaveResult save_checkpoint(const std::string& folder, int64_t step, std::span<const StateTensor> state,
                           const Json& meta, Comm& comm, const SaveRules& rules) {
  const std::string final_path = join_path(folder, step_name(step)), temporary = final_path + ".tmp";
  std::string defect = defect_of(rules, [&] {
    if (comm.rank() != 0) return;
    if (path_exists(temporary)) remove_tree(temporary);
    make_directories(temporary);
  });
  comm.barrier("checkpoint folder made by rank 0");
  Json mine = rank_entry(temporary, comm.rank(), state, rules);
  if (!defect.empty()) mine = {{"defect", defect}};
  const std::vector<std::string> entries = comm.all_gather(mine.dump(), "checkpoint file digests, copied");
  Json files = Json::array();
  std::string not_finite;
  for (const std::string& text : entries) {
    files.push_back(Json::parse(text));
    if (defect.empty() && files.back().contains("defect")) defect = files.back().at("defect");
    if (not_finite.empty() && files.back().contains("not_finite")) not_finite = files.back().at("not_finite");
  }
  if (!not_finite.empty()) {
    if (comm.rank() == 0) remove_tree(temporary);
    refuse_numbers(not_finite);
  }
  if (comm.rank() == 0 && defect.empty())
    defect =
        defect_of(rules, [&] { finish_checkpoint(temporary, final_path, step, std::move(files), meta); });
  if (comm.rank() == 0 && !defect.empty() && path_exists(temporary)) remove_tree(temporary);
  defect = comm.broadcast(defect, 0, "checkpoint committed by rank 0, or why it is not");
  if (!rules.optional && !defect.empty())
    fail(Exit::storage, {.what = "a checkpoint could not be written by another rank",
                         .where = folder,
                         .why = defect,
                         .fix = "free space on that file system, and run the same command again"});
  return defect.empty() ? SaveResult{.path = final_path} : SaveResult{.defect = defect};
}

std::vector<int64_t> list_checkpoints(const std::string& folder) {
  std::vector<int64_t> steps;
  if (!is_directory(folder)) return steps;
  for (const std::string& name : list_directory(folder)) {
    const bool digits = name.starts_with("step-") && name.size() >= 11 && name.size() <= 20 &&
                        name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (!digits) continue;
    const int64_t step = std::stoll(name.substr(5));
    if (name == step_name(step)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void finish_replacing(const std::string& folder) {
  for (const std::string& name : list_directory(folder)) {
    if (!name.starts_with("step-") || !name.ends_with(kReplaced)) continue;
    const std::string aside = join_path(folder, name);
    const std::string final_path = aside.substr(0, aside.size() - std::string_view(kReplaced).size());
    if (path_exists(join_path(final_path, kManifestName)))
      remove_tree(aside);
    else
      rename_path(aside, final_path);
  }
}

KeptCheckpoints kept_checkpoints(const std::string& folder, const KeepRules& rules) {
  std::vector<int64_t> steps = list_checkpoints(folder);
  std::reverse(steps.begin(), steps.end());
  KeptCheckpoints all;
  int64_t counted = 0;
  for (const int64_t step : steps) {
    const std::string path = join_path(folder, step_name(step));
    const bool whole = path_exists(join_path(path, kManifestName));
    if (all.kept.empty() && !whole) continue;  // newer than all that is known to be good: not ours to judge
    const bool chosen = rules.stay.contains(step);
    const bool extra = whole && !chosen && rules.is_extra && rules.is_extra(path);
    counted += whole && !extra && !chosen;
    const bool stays = whole && (all.kept.empty() || chosen || (!extra && counted <= rules.keep));
    (stays ? all.kept : all.old).push_back(step);
  }
  return all;
}

void remove_old_checkpoints(const std::string& folder, const KeepRules& rules) {
  for (const int64_t step : kept_checkpoints(folder, rules).old) {
    const std::string path = join_path(folder, step_name(step)), manifest = join_path(path, kManifestName);
    // Without its manifest a folder is no checkpoint: a removal that is cut short leaves nothing half valid.
    if (path_exists(manifest)) remove_tree(manifest);
    remove_tree(path);
  }
  for (const std::string& name : list_directory(folder))
    if (name.ends_with(".tmp") && is_temporary(name)) remove_tree(join_path(folder, name));
}

}  // namespace temper

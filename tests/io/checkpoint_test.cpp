// Checkpoints of one rank: which are kept, what every kind of damage leads to, what load_state refuses.

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <set>

#include "tests/io/checkpoint_ranks.h"
#include "tests/support/expect_error.h"

namespace temper {
namespace {

class Checkpoint : public CheckpointOnRanks {
 protected:
  std::string path_of(int64_t step, const std::string& file = "") const {
    return join_path(folder_, fmt::format("step-{:06d}", step)) + (file.empty() ? "" : "/" + file);
  }
  std::string read(int64_t step) const { return read_file(path_of(step, kFile), 1 << 24); }
  void overwrite(int64_t step, const std::string& bytes) const {
    write_file_atomic(path_of(step, kFile), bytes);
  }
  /// Damage, once as a list and once as the error of require_sound, which names `words`.
  std::vector<Damage> expect_damaged(int64_t step, std::vector<std::string> words, const std::string& label) {
    words.push_back(kFile);
    expect_error(Exit::data, words, label, [&] { require_sound(path_of(step)); });
    return verify_checkpoint(path_of(step));
  }

  static constexpr const char* kFile = "rank-0000.h5";
};

TEST_F(Checkpoint, KeepsTheNewest) {
  for (int64_t step = 1; step <= 5; ++step) {
    save(step, 1);
    EXPECT_EQ(list_checkpoints(folder_).size(), static_cast<size_t>(std::min<int64_t>(step, 3)))
        << "saving removes nothing";
    remove_old_checkpoints(folder_, {2});
  }
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<int64_t>{4, 5}));
  expect_loads(path_of(4), 1, 1);
  remove_old_checkpoints(folder_, {10});
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<int64_t>{4, 5}));
}

/// They do not count among those that are kept, and stay as long as nothing is newer.
TEST_F(Checkpoint, ExtraOnesStayWhileTheyAreTheNewest) {
  std::set<std::string> extra;
  const KeepRules rules{2, [&](const std::string& path) { return extra.contains(path); }};
  const auto after = [&](int64_t step, bool is_extra) {
    save(step, 1);
    if (is_extra) extra.insert(path_of(step));
    remove_old_checkpoints(folder_, rules);
    return list_checkpoints(folder_);
  };
  EXPECT_EQ(after(1, true), (std::vector<int64_t>{1}));
  EXPECT_EQ(after(2, true), (std::vector<int64_t>{2}));
  EXPECT_EQ(after(3, false), (std::vector<int64_t>{3}));
  EXPECT_EQ(after(4, true), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(after(5, false), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(after(6, true), (std::vector<int64_t>{3, 5, 6}));
  EXPECT_EQ(after(7, true), (std::vector<int64_t>{3, 5, 7}));
  EXPECT_EQ(after(8, false), (std::vector<int64_t>{5, 8}));
}

/// What was there stays; only one that has to be made ends the run.
TEST_F(Checkpoint, AnOptionalOneThatCannotBeWrittenIsSaid) {
  const std::string blocked = folder_ + "/file";
  write_file_atomic(blocked, "no folder");
  RankState state(tensors_, 0, 1);
  state.fill(tensors_, 1);
  const SaveResult none =
      save_checkpoint(blocked, 1, state.pieces(), checkpoint_meta(), *comm_, {.optional = true});
  EXPECT_EQ(none.path, "");
  EXPECT_NE(none.defect.find(blocked), std::string::npos) << none.defect;
  expect_error(Exit::storage, {blocked}, "one that has to be",
               [&] { save_checkpoint(blocked, 1, state.pieces(), checkpoint_meta(), *comm_); });
}

TEST_F(Checkpoint, OnlyCommittedOnesCount) {
  for (int64_t step = 1; step <= 5; ++step) save(step, 1);
  remove_tree(path_of(3, kManifestName));  // a removal that was cut short
  remove_tree(path_of(5, kManifestName));
  make_directories(path_of(6) + ".tmp");
  remove_old_checkpoints(folder_, {2});
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_FALSE(path_exists(path_of(6) + ".tmp"));
  expect_loads(path_of(2), 1, 1);
  expect_error(Exit::data, {path_of(5), kManifestName}, "no manifest", [&] { Manifest::read(path_of(5)); });
}

TEST_F(Checkpoint, OneOfTheSameStepIsReplacedAndAKilledReplacementUndone) {
  const std::string old = path_of(1) + ".replaced";
  save(1, 1);
  const std::string first = read(1);
  rename_path(path_of(1), old);  // killed before the new one had its name
  finish_replacing(folder_);
  EXPECT_FALSE(path_exists(old));
  EXPECT_TRUE(read(1) == first);
  rename_path(path_of(1), old);
  save(1, 1);  // killed before the old one was gone
  finish_replacing(folder_);
  EXPECT_FALSE(path_exists(old));
  make_directories(old);
  save(1, 1);
  EXPECT_EQ(list_directory(folder_), (std::vector<std::string>{"step-000001"}));
  expect_loads(path_of(1), 1, 1);
}

TEST_F(Checkpoint, ListsNothingButStepFolders) {
  save(9, 1);
  for (const char* name : {"step-9", "step-0000010", "step-00001x", "step-99999999999999999999", "other"})
    make_directories(join_path(folder_, name));
  EXPECT_EQ(list_checkpoints(folder_), std::vector<int64_t>{9});
  EXPECT_TRUE(list_checkpoints(join_path(folder_, "absent")).empty());
}

TEST_F(Checkpoint, AStateWithGapsIsNotPublished) {
  save(1, 1);
  RankState state(tensors_, 0, 2);  // the second half of the elements is nowhere
  EXPECT_THROW(save_checkpoint(folder_, 2, state.pieces(), checkpoint_meta(), *comm_).path, Error);
  EXPECT_EQ(list_checkpoints(folder_), std::vector<int64_t>{1});
  EXPECT_TRUE(verify_checkpoint(path_of(1)).empty());
}

TEST_F(Checkpoint, EveryFlippedBitIsFound) {
  save(1, 1);
  const std::string good = read(1);
  for (size_t at = 0; at < good.size(); at += 409) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    overwrite(1, bad);
    expect_damaged(1, {"digest"}, fmt::format("byte {}", at));
  }
}

TEST_F(Checkpoint, DamageNamesTheTensor) {
  save(1, 1);
  for (const LogicalTensor& t : tensors_) {
    const Manifest::Shard shard = Manifest::read(path_of(1)).tensors().at(t.name).shards.at(0);
    const std::string good = read(1);
    std::string bad = good;
    bad[static_cast<size_t>(shard.offset + t.size() * dtype_size(t.dtype) - 1)] ^= 0x10;
    overwrite(1, bad);
    const std::vector<Damage> damage = expect_damaged(1, {"digest"}, t.name);
    ASSERT_EQ(damage.size(), 2u) << t.name;  // the file, then the one tensor in it
    EXPECT_EQ(damage[1].tensor, t.name);
    overwrite(1, good);
  }
  EXPECT_TRUE(verify_checkpoint(path_of(1)).empty());
}

TEST_F(Checkpoint, FilesOfAnotherSizeOrMissing) {
  save(1, 1);
  const std::string good = read(1);
  for (size_t size : {size_t{0}, size_t{1}, size_t{4096}, good.size() / 2, good.size() - 1}) {
    overwrite(1, good.substr(0, size));
    expect_damaged(1, {std::to_string(size), std::to_string(good.size())}, fmt::format("{} bytes", size));
  }
  overwrite(1, good + "x");
  expect_damaged(1, {std::to_string(good.size() + 1)}, "longer");
  remove_tree(path_of(1, kFile));
  EXPECT_FALSE(expect_damaged(1, {"missing"}, "missing").empty());
}

TEST_F(Checkpoint, LoadingFromATruncatedFileFails) {
  save(1, 1);
  overwrite(1, read(1).substr(0, 4096));
  RankState state(tensors_, 0, 1);
  const Manifest manifest = Manifest::read(path_of(1));
  expect_error(Exit::data, {kFile, "truncated"}, "truncated", [&] { load_state(manifest, state.pieces()); });
}

TEST_F(Checkpoint, LoadRefusesAnotherModel) {
  save(1, 1);
  const Manifest manifest = Manifest::read(path_of(1));
  const auto expect_refused = [&](const LogicalTensor& t, std::vector<std::string> words) {
    RankState state({t}, 0, 1);
    expect_error(Exit::data, words, t.name, [&] { load_state(manifest, state.pieces()); });
  };
  expect_refused({"param/absent", {7, 11}, DType::f32}, {"lacks", "param/absent"});
  expect_refused({"param/embed", {11, 7}, DType::f32}, {"param/embed", "[7, 11]", "[11, 7]"});
  expect_refused({"param/embed", {77}, DType::f32}, {"param/embed", "[77]"});
  expect_refused({"param/embed", {7, 11}, DType::f64}, {"param/embed", "fp32", "fp64"});
}

/// fp32 state in bf16, or in two halves: the file of the fp32 elements, and back; from what no half holds,
/// the nearest bf16. More elements than are converted at a time.
TEST_F(Checkpoint, StateInHalvesIsStoredAsFp32) {
  const int64_t n = (int64_t{1} << 20) + 77;
  const auto count = static_cast<size_t>(n);
  std::vector<float> master(count), moment(count);
  std::vector<uint16_t> weight(count), low(count), short_moment(count);
  for (size_t i = 0; i < count; ++i) {
    const PhiloxBlock words = philox({static_cast<uint32_t>(i), 0, 0, 0}, 1);
    master[i] = std::bit_cast<float>(words[0] & 0xbfffffffu);  // no NaN
    short_moment[i] = static_cast<uint16_t>(words[1] & 0xbfffu);
    weight[i] = master_weight(master[i]);
    low[i] = master_remainder(master[i]);
    moment[i] = std::bit_cast<float>(static_cast<uint32_t>(short_moment[i]) << 16);
  }
  const FlatRange all{0, n};
  const auto wide = [&](const char* name, std::vector<float>& data) {
    return StateTensor{name, {n}, all, make_tensor(data.data(), DType::f32, {n})};
  };
  const auto half = [&](const char* name, std::vector<uint16_t>& data, Tensor remainder = {}) {
    return StateTensor{name,        {n},  all,      make_tensor(data.data(), DType::bf16, {n}),
                       Device::cpu, true, remainder};
  };
  const Tensor remainder = make_tensor(low.data(), DType::u16, {n});
  const std::vector<StateTensor> fp32{wide("param/a", master), wide("opt/m/a", moment)},
      halves{half("param/a", weight, remainder), half("opt/m/a", short_moment)};
  const Manifest of_fp32 = Manifest::read(save_checkpoint(folder_, 1, fp32, checkpoint_meta(), *comm_).path),
                 of_halves =
                     Manifest::read(save_checkpoint(folder_, 2, halves, checkpoint_meta(), *comm_).path);
  EXPECT_EQ(verify_checkpoint(of_halves.path()).size(), 0u);
  for (const auto& [name, tensor] : of_fp32.tensors()) {
    EXPECT_EQ(of_halves.tensors().at(name).digest, tensor.digest) << name;
    EXPECT_EQ(of_halves.tensors().at(name).dtype, DType::f32);
  }
  const std::vector<uint16_t> weights = weight, lows = low, moments = short_moment;
  weight.assign(count, 0), low.assign(count, 0), short_moment.assign(count, 0);
  load_state(of_fp32, halves);
  EXPECT_TRUE(weight == weights && low == lows && short_moment == moments);
  const std::vector<StateTensor> rounded{half("param/a", short_moment)};
  load_state(of_fp32, rounded);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(short_moment[i], bf16_bits(master[i])) << i;
}

TEST_F(Checkpoint, AnEmptyStateIsACheckpointToo) {
  const std::string path = save_checkpoint(folder_, 1, {}, checkpoint_meta(), *comm_).path;
  EXPECT_TRUE(verify_checkpoint(path).empty());
  EXPECT_TRUE(Manifest::read(path).tensors().empty());
}

TEST_F(Checkpoint, EmptyPiecesAndEmptyTensorsAreKept) {
  const LogicalTensor nothing{"param/nothing", {0, 3}, DType::f32}, some = tensors_[0];
  RankState state({{nothing, {0, 0}}, {some, {0, 0}}, {some, {0, some.size()}}});
  const std::string path = save_checkpoint(folder_, 1, state.pieces(), checkpoint_meta(), *comm_).path;
  EXPECT_TRUE(verify_checkpoint(path).empty());
  const Manifest manifest = Manifest::read(path);
  EXPECT_EQ(manifest.tensors().at(nothing.name).shape, nothing.shape);
  EXPECT_EQ(manifest.tensors().at(some.name).shards.size(), 1u);
  EXPECT_NO_THROW(load_state(manifest, state.pieces()));
}

TEST_F(Checkpoint, PiecesThatOverlapAreNotPublished) {
  const LogicalTensor& t = tensors_[0];
  RankState state({{t, {0, 40}}, {t, {39, t.size()}}});
  EXPECT_THROW(save_checkpoint(folder_, 1, state.pieces(), checkpoint_meta(), *comm_).path, Error);
  EXPECT_TRUE(list_checkpoints(folder_).empty());
}

/// Files of this process cannot grow beyond `bytes` while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(Checkpoint, StorageThatEndsAnywhereIsAnErrorAndTheLastOneStays) {
  save(1, 1);
  RankState state(tensors_, 0, 1);
  state.fill(tensors_, 2);
  const size_t size = read(1).size();
  for (size_t limit = 0; limit < size; limit += limit < 64 ? 1 : 401) {
    const FileSizeLimit full(limit);
    expect_error(Exit::storage, {kFile}, fmt::format("{} bytes", limit),
                 [&] { save_checkpoint(folder_, 2, state.pieces(), checkpoint_meta(), *comm_).path; });
  }
  EXPECT_EQ(list_checkpoints(folder_), std::vector<int64_t>{1});
  EXPECT_TRUE(verify_checkpoint(path_of(1)).empty());
  expect_loads(save(2, 2), 1, 2);
}

TEST_F(Checkpoint, ANameAndAManifestThatDisagree) {
  save(5, 1);
  std::filesystem::rename(path_of(5), path_of(9));
  expect_error(Exit::data, {"step-000009", "step 5", "step-000005"}, "under another number",
               [&] { Manifest::read(path_of(9)); });
  std::filesystem::rename(path_of(9), folder_ + "/mine");
  EXPECT_EQ(Manifest::read(folder_ + "/mine").step(), 5) << "a name without a number says nothing";
}

/// What a run cannot go on from is not committed, and the last good one stays; where it was, it is found.
TEST_F(Checkpoint, NumbersThatAreNotFinite) {
  float good[3] = {0, -1e38f, 1e-45f}, bad[3] = {1, std::numeric_limits<float>::infinity(), 2};
  double worse[2] = {std::numeric_limits<double>::quiet_NaN(), 0};
  int32_t ids[2] = {0x7f800000, -1};  // bits of an infinity
  const StateTensor fine{"param/a", {3}, {0, 3}, make_tensor(good, DType::f32, {3})},
      words{"ahead/x", {2}, {0, 2}, make_tensor(ids, DType::i32, {2})},
      infinite{"opt/v/a", {3}, {0, 3}, make_tensor(bad, DType::f32, {3})},
      none{"opt/m/b", {2}, {0, 2}, make_tensor(worse, DType::f64, {2})};
  const auto save = [&](int64_t step, const std::vector<StateTensor>& state, Numbers numbers) {
    return save_checkpoint(folder_, step, state, checkpoint_meta(), *comm_, {numbers}).path;
  };
  save(1, {fine, words}, Numbers::finite);
  expect_error(Exit::numerics, {"opt/v/a", "not finite", "last good checkpoint"}, "infinite", [&] {
    save(2, {fine, infinite}, Numbers::finite);
  });
  expect_error(Exit::numerics, {"opt/m/b"}, "no number", [&] { save(2, {none}, Numbers::finite); });
  EXPECT_EQ(list_checkpoints(folder_), std::vector<int64_t>{1});
  EXPECT_TRUE(verify_checkpoint(path_of(1), Numbers::finite).empty());
  const std::string other = save(3, {fine, infinite, none}, Numbers::any);
  EXPECT_TRUE(verify_checkpoint(other).empty());
  const std::vector<Damage> damage = verify_checkpoint(other, Numbers::finite);
  ASSERT_EQ(damage.size(), 2u);
  EXPECT_EQ(damage[0].tensor, "opt/m/b");
  EXPECT_EQ(damage[1].tensor, "opt/v/a");
}

/// A checkpoint that two ranks wrote in version 1 of the format.
class CheckpointOfVersion1 : public Checkpoint {
 protected:
  CheckpointOfVersion1() {
    std::filesystem::copy("tests/golden/io/checkpoint_v1", folder_, std::filesystem::copy_options::recursive);
  }
};

TEST_F(CheckpointOfVersion1, LoadsOnAnyNumberOfRanks) {
  EXPECT_EQ(Manifest::read(path_of(7)).version(), 1);
  EXPECT_TRUE(verify_checkpoint(path_of(7)).empty());
  for (int ranks : {1, 2, 3, 5, 64}) expect_loads(path_of(7), ranks, 3);
}

TEST_F(CheckpointOfVersion1, EveryByteThatChangesIsFound) {
  for (const char* name : {"rank-0000.h5", "rank-0001.h5", kManifestName}) {
    const std::string good = read_file(path_of(7, name), 1 << 24);
    const auto write = [&](const std::string& bytes) {  // a new file without a sync
      remove_tree(path_of(7, name));
      OutputFile(path_of(7, name), OutputFile::Mode::create_new).write(bytes);
    };
    for (size_t at = 0; at + 1 < good.size(); ++at) {  // the last byte of the manifest ends its line
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      write(bad);
      expect_error(Exit::data, {name}, fmt::format("byte {}", at), [&] { require_sound(path_of(7)); });
    }
    write(good);
  }
  EXPECT_TRUE(verify_checkpoint(path_of(7)).empty());
}

TEST_F(Checkpoint, APathThatDoesNotExist) {
  expect_error(Exit::usage, {"absent"}, "absent", [&] { Manifest::read(join_path(folder_, "absent")); });
}

TEST_F(Checkpoint, OneThatMayNotBeLookedAtIsThere) {
  save(3, 1);
  ASSERT_EQ(::chmod(path_of(3).c_str(), 0), 0);
  const bool root = ::geteuid() == 0;  // who may look everywhere
  ASSERT_EQ(::seteuid(root ? 65534 : ::geteuid()), 0);
  expect_error(Exit::storage, {"step-000003", "Permission denied"}, "without rights",
               [&] { Manifest::read(path_of(3)); });
  ASSERT_EQ(::seteuid(root ? 0 : ::geteuid()), 0);
  ASSERT_EQ(::chmod(path_of(3).c_str(), 0755), 0);
  EXPECT_EQ(Manifest::read(path_of(3)).step(), 3);
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }

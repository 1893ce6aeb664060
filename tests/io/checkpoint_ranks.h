#pragma once
// A checkpoint written on N ranks: its logical tensors are the same for every N, and any number of ranks
// reads them back bit for bit. The same tests run on 1, 2 and 3 ranks (checkpoint_test.cpp,
// checkpoint_mpi*_test.cpp).

#include "src/core/file.h"
#include "tests/io/checkpoint_state.h"
#include "tests/support/ranks.h"

namespace temper {

class CheckpointOnRanks : public OnRanks {
 protected:
  std::string save(int64_t step, uint64_t seed) {
    RankState state(tensors_, comm_->rank(), comm_->size());
    state.fill(tensors_, seed);
    return save_checkpoint(folder_, step, state.pieces(), checkpoint_meta(), *comm_).path;
  }
  std::string save_fused(int64_t step, uint64_t seed) {
    RankState state(fused_cuts(tensors_, 3, comm_->rank(), comm_->size()));
    state.fill(tensors_, seed);
    return save_checkpoint(folder_, step, state.pieces(), checkpoint_meta(), *comm_).path;
  }
  void expect_loads(const std::string& checkpoint, int ranks, uint64_t seed) {
    for (int rank = 0; rank < ranks; ++rank)
      expect_loads_into(checkpoint, flat_cuts(tensors_, rank, ranks), seed);
  }
  void expect_loads_into(const std::string& checkpoint, const std::vector<Cut>& cuts, uint64_t seed) {
    RankState state(cuts);
    load_state(Manifest::read(checkpoint), state.pieces());
    for (size_t i = 0; i < state.pieces().size(); ++i)
      EXPECT_EQ(state.bytes(i), state.want(tensors_, i, seed))
          << state.pieces()[i].name << " from " << state.pieces()[i].range.begin << " on";
  }

  const std::vector<LogicalTensor> tensors_ = logical_tensors();
};

TEST_F(CheckpointOnRanks, AnyNumberOfRanksReadsItBack) {
  const std::string checkpoint = save(10, 1);
  EXPECT_EQ(checkpoint, join_path(folder_, "step-000010"));
  for (int ranks : {1, 2, 3, 5, 64}) expect_loads(checkpoint, ranks, 1);
}

TEST_F(CheckpointOnRanks, ManifestTellsOfTheWhole) {
  const Manifest manifest = Manifest::read(save(7, 2));
  EXPECT_EQ(manifest.step(), 7);
  EXPECT_EQ(manifest.meta_count("optimizer_updates"), 12);
  EXPECT_EQ(manifest.meta_count("data_position"), 345);
  EXPECT_EQ(manifest.meta_text("config"), "[run]\nsteps = 3\n");
  EXPECT_EQ(manifest.files().size(), static_cast<size_t>(comm_->size()));
  ASSERT_EQ(manifest.tensors().size(), tensors_.size());
  for (const LogicalTensor& t : tensors_) {
    const Manifest::Tensor& found = manifest.tensors().at(t.name);
    const std::string bytes = logical_bytes(t, 2);
    EXPECT_EQ(found.shape, t.shape) << t.name;
    EXPECT_EQ(found.dtype, t.dtype) << t.name;
    std::string lines;
    for (const Manifest::Shard& s : found.shards) {
      const int64_t item = dtype_size(t.dtype);
      EXPECT_EQ(s.digest, digest_hex(bytes.data() + s.first * item, s.count * item)) << t.name;
      lines += fmt::format("{} {} {}\n", s.first, s.count, s.digest);
    }
    EXPECT_EQ(found.digest, digest_hex(lines.data(), static_cast<int64_t>(lines.size()))) << t.name;
  }
}

TEST_F(CheckpointOnRanks, SeveralPiecesOfOneTensorOnEachRank) {
  const std::string fused = save_fused(1, 8), flat = save(2, 8);
  EXPECT_TRUE(verify_checkpoint(fused).empty());
  for (int ranks : {1, 2, 5}) {
    expect_loads(fused, ranks, 8);
    for (int rank = 0; rank < ranks; ++rank)
      for (int64_t parts : {1, 3, 4}) expect_loads_into(flat, fused_cuts(tensors_, parts, rank, ranks), 8);
  }
}

TEST_F(CheckpointOnRanks, IsSoundAndReplacesOneOfTheSameStep) {
  save(3, 4);
  const std::string checkpoint = save(3, 5);
  EXPECT_TRUE(verify_checkpoint(checkpoint).empty());
  EXPECT_NO_THROW(require_sound(checkpoint));
  expect_loads(checkpoint, 2, 5);
}

TEST_F(CheckpointOnRanks, RemainsOfASaveThatWasCutShortDoNotMatter) {
  const std::string before = save(1, 6);
  if (comm_->rank() == 0) {  // files of step 2, but no manifest and no rename
    make_directories(join_path(folder_, "step-000002.tmp"));
    write_file_atomic(join_path(folder_, "step-000002.tmp/rank-0000.h5"), "half a file");
  }
  comm_->barrier("remains are there");
  EXPECT_EQ(list_checkpoints(folder_), std::vector<int64_t>{1});
  expect_loads(before, 3, 6);
  const std::string after = save(2, 7);
  EXPECT_EQ(list_checkpoints(folder_), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(path_exists(join_path(folder_, "step-000002.tmp")));
  EXPECT_TRUE(verify_checkpoint(after).empty());
  expect_loads(after, 3, 7);
}

}  // namespace temper

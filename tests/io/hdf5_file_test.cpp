// The files of a checkpoint as the HDF5 library sees them: every dataset, its attributes and its data.

#include <hdf5.h>

#include "src/core/file.h"
#include "tests/io/checkpoint_state.h"
#include "tests/support/ranks.h"

namespace temper {
namespace {

/// An open file or dataset.
class Open {
 public:
  Open(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Open() { close_(id_); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// Paths of all datasets, sorted.
std::vector<std::string> dataset_paths(hid_t file) {
  std::vector<std::string> paths;
  const auto add = [](hid_t, const char* path, const H5O_info_t* info, void* list) {
    if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(list)->push_back(path);
    return herr_t{0};
  };
  EXPECT_GE(H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, add, &paths), 0);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<int64_t> integers(hid_t dataset, const char* name) {
  const Open attribute(H5Aopen(dataset, name, H5P_DEFAULT), H5Aclose);
  const Open space(H5Aget_space(attribute), H5Sclose);
  std::vector<int64_t> values(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
  EXPECT_GE(H5Aread(attribute, H5T_NATIVE_INT64, values.data()), 0) << name;
  return values;
}

std::string text(hid_t dataset, const char* name) {
  const Open attribute(H5Aopen(dataset, name, H5P_DEFAULT), H5Aclose);
  const Open type(H5Aget_type(attribute), H5Tclose);
  std::string value(H5Tget_size(type), '\0');
  EXPECT_GE(H5Aread(attribute, type, value.data()), 0) << name;
  return value.c_str();
}

hid_t stored_type(DType type) {
  if (type == DType::bf16) return H5T_STD_U16LE;
  if (type == DType::i32) return H5T_STD_I32LE;
  return type == DType::f64 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE;
}

void expect_dataset(hid_t file, const std::string& path, const StateTensor& piece, const std::string& want) {
  const Open dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose);
  const Open type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
  const Open created(H5Dget_create_plist(dataset), H5Pclose);
  EXPECT_GT(H5Tequal(type, stored_type(piece.data.dtype)), 0) << path;
  EXPECT_EQ(H5Sget_simple_extent_ndims(space), 1) << path;
  EXPECT_EQ(H5Sget_simple_extent_npoints(space), piece.range.size()) << path;
  EXPECT_EQ(H5Pget_layout(created), H5D_CONTIGUOUS) << path;
  EXPECT_EQ(H5Pget_nfilters(created), 0) << path;
  EXPECT_EQ(integers(dataset, "global_shape"), piece.shape) << path;
  EXPECT_EQ(integers(dataset, "first_element"), std::vector<int64_t>{piece.range.begin}) << path;
  EXPECT_EQ(text(dataset, "logical_dtype"), dtype_name(piece.data.dtype)) << path;
  EXPECT_EQ(H5Aget_num_attrs(dataset), 3) << path;
  std::string data(want.size(), '\0');
  ASSERT_GE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()), 0) << path;
  EXPECT_TRUE(data == want) << path;
}

/// Small tensors, and one of more than two runs of digests.
std::vector<LogicalTensor> tensors_of_all_sizes() {
  std::vector<LogicalTensor> tensors = logical_tensors();
  tensors.push_back({"unfinished", {9}, DType::i32});
  tensors.push_back({"opt/v/long", {9, 1 << 20}, DType::bf16});
  return tensors;
}

class Hdf5File : public OnRanks {
 protected:
  /// Saves what `cuts` say and expects a dataset for each, at `paths` (in their order).
  void expect_saved(const std::vector<Cut>& cuts, std::vector<std::string> paths) {
    const std::vector<LogicalTensor> tensors = tensors_of_all_sizes();
    RankState state(cuts);
    state.fill(tensors, 4);
    const std::string path = save_checkpoint(folder_, 1, state.pieces(), checkpoint_meta(), *comm_).path;
    EXPECT_TRUE(verify_checkpoint(path).empty());
    const std::string name = join_path(path, "rank-0000.h5");
    ASSERT_GT(H5Fis_hdf5(name.c_str()), 0);
    const Open file(H5Fopen(name.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    hsize_t bytes = 0;
    EXPECT_GE(H5Fget_filesize(file, &bytes), 0);
    EXPECT_EQ(static_cast<int64_t>(bytes), Manifest::read(path).files().at(0).bytes);
    for (size_t i = 0; i < cuts.size(); ++i)
      expect_dataset(file, paths[i], state.pieces()[i], state.want(tensors, i, 4));
    std::sort(paths.begin(), paths.end());
    EXPECT_EQ(dataset_paths(file), paths);
  }
};

TEST_F(Hdf5File, HoldsOneDatasetPerTensorUnderItsName) {
  std::vector<std::string> paths;
  for (const LogicalTensor& t : tensors_of_all_sizes()) paths.push_back(t.name);
  expect_saved(flat_cuts(tensors_of_all_sizes(), 0, 1), paths);
}

TEST_F(Hdf5File, SeveralPiecesOfOneTensorAreNamedByTheirFirstElement) {
  const std::vector<LogicalTensor> tensors{tensors_of_all_sizes()[0], tensors_of_all_sizes()[3]};
  std::vector<Cut> cuts = fused_cuts(tensors, 3, 0, 1);
  cuts.push_back({tensors_of_all_sizes()[1], {0, 77}});
  expect_saved(cuts, {"param/embed@0", "param/embed@25", "param/embed@51", "param/layers.0.attn.wqkv@0",
                      "param/layers.0.attn.wqkv@20", "param/layers.0.attn.wqkv@40", "opt/m/embed"});
}

TEST_F(Hdf5File, DigestsEndWhereRunsOfTheTensorEnd) {
  constexpr int64_t kRun = 4 << 20, kSize = 9 << 20;
  const LogicalTensor t = tensors_of_all_sizes().back();
  const auto borders = [&](const std::vector<Cut>& cuts) {
    const RankState state(cuts);
    const std::string path = save_checkpoint(folder_, 2, state.pieces(), checkpoint_meta(), *comm_).path;
    std::vector<int64_t> firsts;
    const Manifest manifest = Manifest::read(path);
    for (const Manifest::Shard& s : manifest.tensors().at(t.name).shards) firsts.push_back(s.first);
    return firsts;
  };
  EXPECT_EQ(borders({{t, {0, kSize}}}), (std::vector<int64_t>{0, kRun, 2 * kRun}));
  EXPECT_EQ(borders({{t, {kRun + 5, kSize}}, {t, {0, kRun + 5}}}),
            (std::vector<int64_t>{0, kRun, kRun + 5, 2 * kRun}));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) { return temper::run_tests_on_ranks(argc, argv, 1); }

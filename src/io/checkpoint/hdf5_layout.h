#pragma once
// Where everything in one HDF5 file lies: contiguous datasets, no filters, no links. The library lays the
// file out on a driver of ours that holds the little it writes, which is all but the data of the datasets.
// temper writes the file itself (so that a full disk is an error and not a crash inside the library) and
// reads it back by offset, without the library.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/core/dtype.h"

namespace temper {

struct Hdf5Dataset {
  std::string path;  // "/param/layers.0.attn.wqkv"
  DType dtype = DType::f32;
  int64_t count = 0;                  // elements, at least 1
  int64_t first_element = 0;          // attribute: position in the flattened tensor
  std::vector<int64_t> global_shape;  // attribute
};

/// Bytes by offset, zero where nothing was written. Holds the pages that were touched.
class SparseBytes {
 public:
  void write(int64_t offset, const void* from, int64_t bytes);
  void read(int64_t offset, void* to, int64_t bytes) const;

 private:
  static constexpr int64_t kPage = 4096;
  std::map<int64_t, std::array<char, kPage>> pages_;  // by offset / kPage
};

struct Hdf5Layout {
  int64_t bytes = 0;             // of the whole file
  std::vector<int64_t> offsets;  // of each dataset's data
  SparseBytes metadata;          // the file without the data
};

Hdf5Layout lay_out_hdf5(std::span<const Hdf5Dataset> datasets);

std::string hdf5_version();

}  // namespace temper

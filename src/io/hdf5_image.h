#pragma once
// One HDF5 file as bytes in memory: contiguous datasets, no filters, no links. temper writes the bytes itself
// (so that a full disk is an error and not a crash inside the library) and reads them back by offset, without
// the library.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/core/tensor.h"

namespace temper {

struct Hdf5Dataset {
  std::string path;                   // "/param/layers.0.attn.wqkv"
  CTensor data;                       // one dimension
  int64_t first_element = 0;          // attribute: position in the flattened tensor
  std::vector<int64_t> global_shape;  // attribute
};

struct Hdf5Image {
  std::vector<char> bytes;
  std::vector<int64_t> offsets;  // of each dataset's data
};

Hdf5Image make_hdf5_image(std::span<const Hdf5Dataset> datasets);

std::string hdf5_version();

}  // namespace temper

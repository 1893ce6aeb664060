#pragma once
// safetensors files. The reader validates the whole header before anything else is touched: length, UTF-8,
// duplicate names, types, shapes (checked products), and that the tensors tile the data area without hole or
// overlap up to the end of the file. Data is read by pread windows. The writer streams tensors in the order
// given.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/core/file.h"

namespace temper {

struct TensorInfo {
  std::string dtype;           // as in the header: "BF16", "F32", ...
  std::vector<int64_t> shape;  // empty: a scalar
  int64_t begin = 0, end = 0;  // bytes of the file, absolute
  std::string file;            // name inside the model folder
  int64_t num_elements() const;
};

/// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);
/// Bits of one element; 0 for an unknown dtype.
int dtype_bits(const std::string& dtype);

class SafetensorsFile {
 public:
  static constexpr int64_t kMaxHeaderBytes = int64_t{32} << 20;
  static constexpr int64_t kMaxTensors = 1 << 18;

  /// `name` is what TensorInfo.file says.
  SafetensorsFile(const std::string& path, const std::string& name);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }
  void read(int64_t offset, int64_t bytes, void* destination) const {
    file_.read(destination, offset, bytes);
  }

 private:
  void parse_header(std::string_view header, int64_t data_begin);
  void check_tiling(int64_t data_begin) const;

  InputFile file_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// One tensor of a file to be written; `write` appends exactly its bytes.
struct TensorToWrite {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::function<void(OutputFile&)> write;
  int64_t num_elements() const;
  int64_t bytes() const;
};

/// Creates `path` (must not exist), in the order of `tensors`, synced.
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace temper

#include "src/io/hdf5_image.h"

#include <hdf5.h>

namespace temper {
namespace {

[[noreturn]] void fail_hdf5(const std::string& what) {
  fail(Exit::storage, {.what = "HDF5 cannot make the file of a checkpoint",
                       .where = what,
                       .why = "the library reports an error; the file is made in memory",
                       .fix = "check that this host has memory left"});
}

/// An HDF5 id that closes itself; creation is checked.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const char* what) : id_(id), close_(close) {
    if (id_ < 0) fail_hdf5(what);
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void check_hdf5(int64_t result, const char* what) {
  if (result < 0) fail_hdf5(what);
}

/// bf16 has no HDF5 type: its bits are stored as unsigned 16-bit, with the attribute logical_dtype.
hid_t file_type(DType t) {
  switch (t) {
    case DType::f32:
      return H5T_IEEE_F32LE;
    case DType::f64:
      return H5T_IEEE_F64LE;
    case DType::i32:
      return H5T_STD_I32LE;
    default:
      return H5T_STD_U16LE;
  }
}

void add_attribute(hid_t dataset, const char* name, const std::vector<int64_t>& values) {
  const hsize_t count = values.size();
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "an attribute space");
  const Handle attribute(H5Acreate2(dataset, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                         name);
  check_hdf5(H5Awrite(attribute, H5T_NATIVE_INT64, values.data()), name);
}

void add_attribute(hid_t dataset, const char* name, const std::string& text) {
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "a string type");
  check_hdf5(H5Tset_size(type, text.size() + 1), "string size");
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, "an attribute space");
  const Handle attribute(H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, name);
  check_hdf5(H5Awrite(attribute, type, text.c_str()), name);
}

int64_t write_dataset(hid_t file, hid_t link_plist, hid_t create_plist, const Hdf5Dataset& d) {
  const hsize_t count = static_cast<hsize_t>(d.data.size());
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "a data space");
  const hid_t type = file_type(d.data.dtype);
  const Handle dataset(H5Dcreate2(file, d.path.c_str(), type, space, link_plist, create_plist, H5P_DEFAULT),
                       H5Dclose, d.path.c_str());
  check_hdf5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, d.data.data), d.path.c_str());
  add_attribute(dataset, "global_shape", d.global_shape);
  add_attribute(dataset, "first_element", std::vector<int64_t>{d.first_element});
  add_attribute(dataset, "logical_dtype", std::string(dtype_name(d.data.dtype)));
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) fail_hdf5("the offset of " + d.path);
  return static_cast<int64_t>(offset);
}

}  // namespace

Hdf5Image make_hdf5_image(std::span<const Hdf5Dataset> datasets) {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  constexpr size_t kGrow = size_t{16} << 20;
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "a file property list");
  check_hdf5(H5Pset_fapl_core(access, kGrow, /*backing_store=*/false), "core driver");
  check_hdf5(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "format version");
  check_hdf5(H5Pset_alignment(access, 4096, 4096), "alignment");
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "a link property list");
  check_hdf5(H5Pset_create_intermediate_group(links, 1), "intermediate groups");
  const Handle create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "a dataset property list");
  check_hdf5(H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY), "early allocation");
  check_hdf5(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER), "fill time");
  const Handle file(H5Fcreate("image", H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "a file image");

  Hdf5Image image;
  for (const Hdf5Dataset& d : datasets) image.offsets.push_back(write_dataset(file, links, create, d));
  check_hdf5(H5Fflush(file, H5F_SCOPE_LOCAL), "flush");
  const ssize_t size = H5Fget_file_image(file, nullptr, 0);
  check_hdf5(size, "image size");
  image.bytes.resize(static_cast<size_t>(size));
  check_hdf5(H5Fget_file_image(file, image.bytes.data(), image.bytes.size()), "image");
  return image;
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace temper

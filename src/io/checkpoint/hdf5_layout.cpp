#include "src/io/checkpoint/hdf5_layout.h"

#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace temper {
namespace {

[[noreturn]] void fail_hdf5(const std::string& what) {
  fail(Exit::storage, {.what = "HDF5 cannot lay out the file of a checkpoint",
                       .where = what,
                       .why = "the library reports an error; nothing but memory is used",
                       .fix = "check that this host has memory left"});
}

void check_hdf5(int64_t result, const std::string& what) {
  if (result < 0) fail_hdf5(what);
}

/// An HDF5 id that closes itself; creation is checked.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const char* what) : id_(id), close_(close) {
    check_hdf5(id_, what);
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }
  void close_now(const char* what) { check_hdf5(close_(std::exchange(id_, -1)), what); }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// What the library writes. Its code after a failed write is not to be trusted: the driver always succeeds,
/// and a failure is looked up when the library is done.
struct Written {
  SparseBytes bytes;
  haddr_t size = 0;  // of the file when it was closed
  bool failed = false;
};

/// An open file of the driver; the library knows its base.
struct LayoutFile : H5FD_t {
  Written* written = nullptr;
  haddr_t allocated = 0, end = 0;
};

LayoutFile* layout_file(H5FD_t* file) { return static_cast<LayoutFile*>(file); }

/// The info of the driver in `access` is a Written*. The library first tries to open a file that is there.
H5FD_t* open_layout(const char*, unsigned flags, hid_t access, haddr_t) {
  if (!(flags & H5F_ACC_CREAT)) return nullptr;
  auto* file = new (std::nothrow) LayoutFile{};
  if (file) file->written = *static_cast<Written* const*>(H5Pget_driver_info(access));
  return file;
}

herr_t close_layout(H5FD_t* file) {
  layout_file(file)->written->size = layout_file(file)->allocated;
  delete layout_file(file);
  return 0;
}

herr_t read_layout(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, size_t bytes, void* to) {
  layout_file(file)->written->bytes.read(static_cast<int64_t>(offset), to, static_cast<int64_t>(bytes));
  return 0;
}

herr_t write_layout(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t offset, size_t bytes, const void* from) {
  LayoutFile* layout = layout_file(file);
  layout->end = std::max(layout->end, offset + bytes);
  try {
    layout->written->bytes.write(static_cast<int64_t>(offset), from, static_cast<int64_t>(bytes));
  } catch (const std::bad_alloc&) {
    layout->written->failed = true;
  }
  return 0;
}

/// A driver whose files are a Written: small parts are gathered in blocks as the drivers of the library do
/// it.
H5FD_class_t layout_driver() {
  H5FD_class_t driver{};
  driver.name = "temper_layout";
  driver.maxaddr = haddr_t{1} << 62;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(Written*);
  driver.open = open_layout;
  driver.close = close_layout;
  driver.read = read_layout;
  driver.write = write_layout;
  driver.query = [](const H5FD_t*, unsigned long* features) {
    *features = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
                H5FD_FEAT_AGGREGATE_SMALLDATA;
    return herr_t{0};
  };
  driver.get_eoa = [](const H5FD_t* file, H5FD_mem_t) {
    return static_cast<const LayoutFile*>(file)->allocated;
  };
  driver.set_eoa = [](H5FD_t* file, H5FD_mem_t, haddr_t end) {
    layout_file(file)->allocated = end;
    return herr_t{0};
  };
  driver.get_eof = [](const H5FD_t* file, H5FD_mem_t) { return static_cast<const LayoutFile*>(file)->end; };
  constexpr H5FD_mem_t kPools[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(kPools), std::end(kPools), driver.fl_map);
  return driver;
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

/// Creates the dataset, which gives its data a place; returns that place.
int64_t add_dataset(hid_t file, hid_t link_plist, hid_t create_plist, const Hdf5Dataset& d) {
  CHECK(d.count > 0, "{} elements of {}", d.count, d.path);
  const auto count = static_cast<hsize_t>(d.count);
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "a data space");
  const Handle dataset(
      H5Dcreate2(file, d.path.c_str(), file_type(d.dtype), space, link_plist, create_plist, H5P_DEFAULT),
      H5Dclose, d.path.c_str());
  add_attribute(dataset, "global_shape", d.global_shape);
  add_attribute(dataset, "first_element", std::vector<int64_t>{d.first_element});
  add_attribute(dataset, "logical_dtype", std::string(dtype_name(d.dtype)));
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) fail_hdf5("the offset of " + d.path);
  return static_cast<int64_t>(offset);
}

}  // namespace

void SparseBytes::write(int64_t offset, const void* from, int64_t bytes) {
  const char* in = static_cast<const char*>(from);
  for (int64_t at = offset; at < offset + bytes;) {
    const int64_t inside = at % kPage, n = std::min(kPage - inside, offset + bytes - at);
    std::memcpy(pages_[at / kPage].data() + inside, in + (at - offset), static_cast<size_t>(n));
    at += n;
  }
}

void SparseBytes::read(int64_t offset, void* to, int64_t bytes) const {
  char* out = static_cast<char*>(to);
  for (int64_t at = offset; at < offset + bytes;) {
    const int64_t inside = at % kPage, n = std::min(kPage - inside, offset + bytes - at);
    if (const auto page = pages_.find(at / kPage); page != pages_.end())
      std::memcpy(out + (at - offset), page->second.data() + inside, static_cast<size_t>(n));
    else
      std::memset(out + (at - offset), 0, static_cast<size_t>(n));
    at += n;
  }
}

Hdf5Layout lay_out_hdf5(std::span<const Hdf5Dataset> datasets) {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  Written written;
  Written* const info = &written;
  const H5FD_class_t description = layout_driver();
  const Handle driver(H5FDregister(&description), H5FDunregister, "the driver");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "a file property list");
  check_hdf5(H5Pset_driver(access, driver, &info), "the driver of a file");
  check_hdf5(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "format version");
  check_hdf5(H5Pset_alignment(access, 4096, 4096), "alignment");
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "a link property list");
  check_hdf5(H5Pset_create_intermediate_group(links, 1), "intermediate groups");
  const Handle create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "a dataset property list");
  check_hdf5(H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY), "early allocation");
  check_hdf5(H5Pset_fill_time(create, H5D_FILL_TIME_NEVER), "fill time");
  Handle file(H5Fcreate("layout", H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose, "a file layout");

  Hdf5Layout layout;
  for (const Hdf5Dataset& d : datasets) layout.offsets.push_back(add_dataset(file, links, create, d));
  file.close_now("end of the layout");
  if (written.failed) fail_hdf5("metadata of the file");
  layout.bytes = static_cast<int64_t>(written.size);
  layout.metadata = std::move(written.bytes);
  return layout;
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace temper

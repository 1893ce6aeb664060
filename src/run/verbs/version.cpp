#include "src/run/verbs/version.h"

#include <gnu/libc-version.h>
#include <link.h>
#include <microhttpd.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <spdlog/version.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zstd.h>

#include <filesystem>

#include "src/comm/gpu/nccl_transport.h"
#include "src/comm/mpi_comm.h"
#include "src/core/process/cuda_version.h"
#include "src/core/text/printable.h"
#include "src/io/checkpoint/hdf5_layout.h"

#ifndef TEMPER_COMMIT
#define TEMPER_COMMIT "unknown"
#endif
#ifndef TEMPER_BUILD_FLAGS
#define TEMPER_BUILD_FLAGS "unknown"
#endif

namespace temper {
namespace {

std::string pcre2_version() {
  char text[64] = "";
  pcre2_config(PCRE2_CONFIG_VERSION, text);
  return text;
}

/// 802 -> "0.8.2", as xxHash and fmt number their versions.
std::string dotted(unsigned number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

/// "libfmt.so.9.1.0, libm.so.6, ...": the files themselves, whose names have more of the version than the
/// links to them.
std::string loaded_files() {
  std::string names;
  const auto add = [](dl_phdr_info* library, size_t, void* to) {
    std::error_code unknown;
    const std::filesystem::path file = std::filesystem::canonical(library->dlpi_name, unknown);
    std::string& all = *static_cast<std::string*>(to);
    if (!unknown) all += (all.empty() ? "" : ", ") + file.filename().string();
    return 0;
  };
  ::dl_iterate_phdr(add, &names);
  return printable(names);
}

/// What this process found, beside what it was built with.
std::string libraries() {
  return fmt::format(
      "PCRE2:    {}\nutf8proc: {}\nxxHash:   {}, built with {}\nzstd:     {}, built with {}\n"
      "MHD:      {}, built with {:x}.{:x}.{:x}\nfmt:      {}\nglibc:    {}, built with {}.{}\nloaded:   {}\n",
      pcre2_version(), utf8proc_version(), dotted(XXH_versionNumber()), dotted(XXH_VERSION_NUMBER),
      ZSTD_versionString(), ZSTD_VERSION_STRING, MHD_get_version(), MHD_VERSION >> 24,
      MHD_VERSION >> 16 & 0xff, MHD_VERSION >> 8 & 0xff, dotted(FMT_VERSION), ::gnu_get_libc_version(),
      __GLIBC__, __GLIBC_MINOR__, loaded_files());
}

}  // namespace

std::string version_text() {
  const std::string mpi = MpiSession::library_version();
  return fmt::format(
      "temper, commit {}\ncompiler: g++ {}\nflags:    {}\nCUDA:     {}\ndriver:   {}\ncuBLASLt: {}\nNCCL:    "
      " {}\n"
      "MPI:      {}\nHDF5:     {}\nspdlog:   {}.{}.{}\n{}",
      TEMPER_COMMIT, __VERSION__, TEMPER_BUILD_FLAGS, cuda_version(), gpu_driver_version(), cublas_version(),
      nccl_version(), mpi.substr(0, mpi.find(',')), hdf5_version(), SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR,
      SPDLOG_VER_PATCH, libraries());
}

}  // namespace temper

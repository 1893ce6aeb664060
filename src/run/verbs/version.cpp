#include "src/run/verbs/version.h"

#include <spdlog/version.h>

#include "src/comm/mpi_comm.h"
#include "src/core/cuda_version.h"
#include "src/io/hdf5_layout.h"

#ifndef TEMPER_COMMIT
#define TEMPER_COMMIT "unknown"
#endif
#ifndef TEMPER_BUILD_FLAGS
#define TEMPER_BUILD_FLAGS "unknown"
#endif

namespace temper {

std::string version_text() {
  const std::string mpi = MpiSession::library_version();
  return fmt::format(
      "temper, commit {}\ncompiler: g++ {}\nflags:    {}\nCUDA:     {}\nMPI:      {}\nHDF5:     "
      "{}\nspdlog:   {}.{}.{}\n",
      TEMPER_COMMIT, __VERSION__, TEMPER_BUILD_FLAGS, cuda_version(), mpi.substr(0, mpi.find(',')),
      hdf5_version(), SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH);
}

}  // namespace temper

#pragma once
// What an mpirun of Open MPI keeps on a host for a job, its session folder and the segments of shared memory,
// and leaves there when it is killed. Jobs of temper mark their session folder; a later one clears those that
// are marked and whose mpirun has ended. What others left stays.

#include <cstdint>
#include <string>

namespace temper {

/// `session`: "TMPDIR/ompi.HOST.USER/pid.NUMBER" of the mpirun that started this process; `job`: its number.
void mark_job(const std::string& session, uint32_t job);

struct Cleared {
  int64_t jobs = 0, bytes = 0;  // of their segments
};
/// Beside `session`; `folder`: of shared memory. Only what belongs to the user of this process, and no
/// segment that a process has mapped: a job that has one stays whole.
Cleared clear_killed_jobs(const std::string& session, const std::string& folder);

}  // namespace temper

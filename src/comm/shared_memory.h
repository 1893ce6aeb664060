#pragma once
// The memory through which the ranks of a host send messages. Open MPI keeps it in a file for each rank, by
// default in /dev/shm. The files are sparse, so a start succeeds where a later message finds no room and ends
// its rank with SIGBUS; and jobs that were killed leave theirs behind.

#include <cstdint>
#include <string>
#include <vector>

namespace temper {

struct SharedMemory {
  /// Files of `folder` that a job of this user left: no process has them open.
  struct Left {
    std::string name;
    int64_t bytes = 0;  // that they take
  };
  bool usable = false;  // the folder is there and may be written
  int64_t free = 0, total = 0;
  std::vector<Left> left;

  int64_t left_bytes() const;
};
SharedMemory look_at_shared_memory(const std::string& folder);

/// For people: what is wrong for `ranks` ranks with files of `segment` bytes, and what to do; empty while
/// nothing is: there is room, and jobs left no more than 64 MiB or a 64th of the folder. `instead`: the
/// folder that is used then; empty: there is none.
std::string shared_memory_warning(const std::string& folder, const SharedMemory& found, int64_t ranks,
                                  int64_t segment, const std::string& instead);

/// The messages of so many ranks find room in `folder`, and the user has not named another one for them.
bool messages_have_room(const std::string& folder, int64_t ranks);

/// Before MPI starts, on every rank: where too little is free, Open MPI gets its files into the folder for
/// temporary files, unless the user has named one. The first rank of the host says what is wrong.
void prepare_shared_memory();

}  // namespace temper

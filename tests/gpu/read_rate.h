#pragma once
// The rate at which this GPU reads its memory: what shares in the bench are shares of.

namespace temper {

/// Bytes per second of a plain kernel that reads 8 GiB and writes next to nothing; the best of several runs.
double read_rate();

}  // namespace temper

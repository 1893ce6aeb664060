#pragma once
// The rates at which this GPU reads and copies its memory: what shares in the benches are shares of.

namespace temper {

/// Bytes per second of a plain kernel that reads 8 GiB and writes next to nothing; the best of several runs.
double read_rate();
/// Bytes read and written per second of a plain kernel that copies 4 GiB; the best of several runs.
double copy_rate();

}  // namespace temper

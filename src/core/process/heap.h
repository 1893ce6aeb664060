#pragma once
// What this process keeps of memory that it has freed.

namespace temper {

/// Blocks of 1 MiB and more go back to the system as soon as they are freed. Without it glibc raises that size
/// up to 32 MiB by what was freed so far, and keeps what a load or a save has used as holes in its heap: memory
/// that no plan can count. Called once, before there is anything to free.
void return_large_blocks();

}  // namespace temper

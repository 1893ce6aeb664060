#pragma once
// Virtual memory of the selected GPU, through functions of its driver, which is not linked: addresses are
// reserved once and backed piece by piece. For core/region.cpp alone.

#include <cstdint>

namespace temper::cuda_memory {

/// Null where so many addresses are not to be had.
char* reserve(int64_t bytes);
void unreserve(char* base, int64_t bytes) noexcept;
/// Backs [at, at + bytes) with memory that this GPU reads and writes; false when none is left. What was
/// given back goes first: regions that take turns ask the driver for nothing after the first turn.
bool back(char* at, int64_t bytes, uint64_t& handle);
/// No work may be under way on it.
void give_back(char* at, int64_t bytes, uint64_t handle) noexcept;

/// Memory that is no part of such a range: one allocation, which other processes can open
/// (core/gpu/peer_memory.h). Null when none is left.
char* allocate_shared(int64_t bytes);
void release_shared(char* base) noexcept;

/// Host memory that the selected GPU reads and writes at the host's own addresses.
void pin(char* base, int64_t bytes);
void unpin(char* base) noexcept;

}  // namespace temper::cuda_memory

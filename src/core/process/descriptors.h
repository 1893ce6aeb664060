#pragma once
// Open descriptors that a message of a Unix socket carries to another process.

#include <sys/types.h>

#include <cstddef>
#include <span>

namespace temper {

/// One message with some bytes and these descriptors; none is legal. One that nobody gets any longer is lost
/// without a word. Between fork and exec, too.
void send_descriptors(int socket, const void* bytes, size_t size, std::span<const int> descriptors);

/// Waits for the next message: its bytes, at most `size`, and its descriptors, which are closed on exec. -1
/// in the place of those that it does not carry. Returns the number of bytes; 0 or less: the other end is
/// gone.
ssize_t receive_descriptors(int socket, void* bytes, size_t size, std::span<int> descriptors);

}  // namespace temper

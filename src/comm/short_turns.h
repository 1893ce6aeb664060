#pragma once
// How long the system lets others have a core before this thread gets it.

namespace temper {

/// Asks the system to run this thread soon after it wakes, in turns of 0.1 ms: ranks wait for each other many
/// times in a step, and a busy neighbour on the core would let each wait take milliseconds (an exchange among
/// 8 ranks beside two such neighbours: 25 times as long). Its share of the core stays the same. Threads and
/// programs that it starts do not inherit it. Does nothing where Linux is older than 6.12 or the thread has
/// a class of its own (real-time, batch).
void ask_for_short_turns() noexcept;

}  // namespace temper

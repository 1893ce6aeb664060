#pragma once
// What a verb has to say: results on stdout, and nothing else there. Every write is checked, and nothing is
// kept back: what was handed over is with the operating system, or the verb has failed.

#include <string_view>

namespace temper {

/// Writes all of it. A stdout that takes no more (a full disk) is Exit::storage. A pipe that nobody reads any
/// more (`| head`) is no error where SIGPIPE is ignored: the rest is dropped.
void write_results(std::string_view text);

/// At the end of the process: some file systems say only when a file is closed that it has no room. stdout
/// stays open. Exit::storage, as above; nothing where nothing was written.
void finish_results();

}  // namespace temper

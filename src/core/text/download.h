#pragma once
// Commands that bring a model or a data set of the Hugging Face Hub to this machine, for errors about a path
// that does not exist. Only names of plain characters become part of a command.

#include <string>

namespace temper {

/// The command for "Qwen/Qwen3-0.6B", as the Hub names it, or for a folder called after a known family
/// ("models/Qwen3-0.6B"); empty for other paths.
std::string model_download(const std::string& path);

/// The commands for "openai/gsm8k", as the Hub names it, or for a file of data/gsm8k; empty for other paths.
std::string data_download(const std::string& path);

}  // namespace temper

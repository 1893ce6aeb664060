#pragma once
// Which checkpoint a path or a run folder means, and whether it is sound.

#include <string>

#include "src/comm/comm.h"
#include "src/io/checkpoint/manifest.h"
#include "src/run/host/model_host.h"

namespace temper {

/// The newest checkpoint of `folder` that verifies; the log says which were passed over, and why. Empty:
/// there is none. One that `named` names is not passed over: when it is damaged, that is Exit::data.
std::string newest_sound_checkpoint(const std::string& folder, const std::string& named = "");

/// `path` is a step folder, or a run folder: then its newest checkpoint.
std::string resolve_checkpoint(const std::string& path);

/// The same on all ranks of `comm`, while a run may save: the first one looks.
std::string shared_checkpoint(const std::string& path, Comm& comm);

/// Meta keys of a manifest, where the run's config names them: absolute paths.
inline constexpr const char* kTokenizerPath = "tokenizer_path";
inline constexpr const char* kTemplatePath = "template_path";
/// Those that the run of a checkpoint named.
TokenizerPlace tokenizer_place(const Manifest& manifest);

/// Those that its run trained; none: whole weights.
AdapterConfig adapters_of(const Manifest& manifest);

/// A checkpoint as a model: its weights, with config and tokenizer of `folder`, or (empty) of the folders
/// that the run began with. Exit::usage where the model's is no longer there.
ModelSource checkpoint_source(const std::string& checkpoint, const std::string& folder);

}  // namespace temper

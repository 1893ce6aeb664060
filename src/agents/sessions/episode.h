#pragma once
// What the program of one session is told, and what it says at its end.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/agents/sessions/end_reason.h"
#include "src/core/json.h"

namespace temper {

struct EpisodeStart {
  std::string id;     // of the session
  Json record = {};   // the data line
  uint32_t seed = 0;  // for the program's own noise: episode_seed
  std::string url;    // of the session: http://host:port/sessions/ID
  std::string key;    // for its requests
};

/// The same for the same sample of a data line in every run with this seed.
uint32_t episode_seed(uint64_t run_seed, int64_t data_position, int32_t sample);

/// {"id", "record", "seed", "base_url", "anthropic_base_url", "api_key", "model"} in one line, without its
/// end.
std::string start_line(const EpisodeStart& start);

/// Variables for clients that take URL, key and models from there: those of openai and anthropic.
std::vector<std::pair<std::string, std::string>> start_variables(const EpisodeStart& start);

/// A program's last line: {"reward": number | null, "parts"?: {name: number}}, other keys are its own. done
/// with that reward, or nonsense where it says something else; reward absent or null: it gives none.
SessionEnd end_line(std::string_view line);

}  // namespace temper

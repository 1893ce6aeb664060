// A run's config, and an override behind a line "=====". What is read without an error, once dumped, is read
// as the same.

#include "src/config/load.h"
#include "tests/fuzz/fuzz.h"

namespace temper {

void fuzz(std::string_view input) {
  const auto parts = parts_of(input, 2);
  const std::string path = input_file("run.toml", parts[0]);
  std::vector<std::string> overrides;
  const std::string override_text(parts[1]);
  if (!parts[1].empty() && override_defect(override_text).empty()) overrides.push_back(override_text);
  takes([&] {
    const ConfigReading reading = read_config(path, overrides);
    for (const ConfigError& error : reading.errors)
      require(!error.message.empty() && error.message.size() < 16384, "an error without a readable message");
    if (!reading.errors.empty()) return;
    const std::string dumped = dump_config(reading.loaded);
    const Config again = read_dumped_config(dumped, "dumped");
    require(config_json(again) == config_json(reading.loaded.config),
            "a dumped config read otherwise:\n" + dumped);
  });
  takes([&] { read_dumped_config(std::string(parts[0]), "config.toml"); });
}

}  // namespace temper

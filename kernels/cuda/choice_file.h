#pragma once
// Choices that only cost time when they are wrong or lost (which library algorithm is fastest), kept between
// runs in one small JSON file of the user's cache folder. The file is never trusted: one that is damaged,
// foreign or not writable gives a warning and is made again, and whoever uses a choice checks it.

#include <map>
#include <optional>
#include <string>

namespace temper::cuda {

/// $XDG_CACHE_HOME/temper, else ~/.cache/temper; empty where neither is set.
std::string user_cache_folder();

class ChoiceFile {
 public:
  /// `identity`: what the choices are true for; a file with another one is not used. No path: nothing is
  /// kept.
  ChoiceFile(std::string path, std::string identity);

  std::optional<std::string> find(const std::string& name) const;
  /// Also writes the file, together with what other processes have put there in the meantime.
  void put(const std::string& name, const std::string& choice);
  const std::string& path() const { return path_; }

 private:
  using Choices = std::map<std::string, std::string>;
  Choices read() const;

  std::string path_, identity_;
  Choices choices_;
};

}  // namespace temper::cuda

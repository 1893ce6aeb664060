#include "kernels/cuda/choice_file.h"

#include <cstdlib>

#include "src/core/file.h"
#include "src/core/json.h"
#include "src/core/log.h"

namespace temper::cuda {
namespace {

constexpr JsonLimits kLimits{.depth = 4, .bytes = 1 << 20};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void fail_content(const std::string& path, const std::string& why) {
  fail(Exit::data, {.what = "not a file of choices", .where = path, .why = why, .fix = "remove it"});
}

}  // namespace

std::string user_cache_folder() {
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (cache.starts_with('/')) return join_path(cache, "temper");
  if (home.starts_with('/')) return join_path(home, ".cache/temper");
  return {};
}

ChoiceFile::ChoiceFile(std::string path, std::string identity)
    : path_(std::move(path)), identity_(std::move(identity)) {
  if (!path_.empty() && path_exists(path_)) choices_ = read();
}

std::optional<std::string> ChoiceFile::find(const std::string& name) const {
  const auto at = choices_.find(name);
  return at == choices_.end() ? std::nullopt : std::optional(at->second);
}

/// A bad cache is no reason to stop.
ChoiceFile::Choices ChoiceFile::read() const {
  Choices read;
  try {
    const Json file = read_json_file(path_, kLimits);
    const auto identity = file.find("for"), list = file.find("choices");
    if (!file.is_object() || identity == file.end() || list == file.end() || !list->is_object())
      fail_content(path_, "\"for\" or \"choices\" is missing");
    if (*identity != Json(identity_)) fail_content(path_, "it is for " + identity->dump());
    for (const auto& [name, choice] : list->items()) {
      if (!choice.is_string()) fail_content(path_, fmt::format("the choice of \"{}\" is no text", name));
      read[name] = choice.get<std::string>();
    }
  } catch (const Error& error) {
    log::warn("{} is not used and will be made again: {}", path_, error.problem().why);
    return {};
  }
  return read;
}

void ChoiceFile::put(const std::string& name, const std::string& choice) {
  choices_[name] = choice;
  if (path_.empty()) return;
  try {
    if (path_exists(path_)) choices_.merge(read());
    Json list = Json::object();
    for (const auto& [key, value] : choices_) list[key] = value;
    make_directories(path_.substr(0, path_.rfind('/')));
    write_file_atomic(path_, Json{{"for", identity_}, {"choices", list}}.dump(1) + "\n");
  } catch (const Error& error) {
    log::warn("choices are not kept: {}", error.problem().what);
    path_.clear();
  }
}

}  // namespace temper::cuda

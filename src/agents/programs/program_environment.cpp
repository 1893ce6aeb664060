#include "src/agents/programs/program_environment.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "src/core/check.h"
#include "src/core/split.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

/// Nothing by which a program could take itself for a rank of the job, and no secret.
constexpr std::array<const char*, 22> kPassed{"PATH",
                                              "HOME",
                                              "USER",
                                              "LOGNAME",
                                              "SHELL",
                                              "LANG",
                                              "LANGUAGE",
                                              "LC_ALL",
                                              "LC_CTYPE",
                                              "TZ",
                                              "TERM",
                                              "LD_LIBRARY_PATH",
                                              "PYTHONPATH",
                                              "VIRTUAL_ENV",
                                              "CONDA_PREFIX",
                                              "SSL_CERT_FILE",
                                              "SSL_CERT_DIR",
                                              "REQUESTS_CA_BUNDLE",
                                              "NODE_PATH",
                                              "JAVA_HOME",
                                              "XDG_RUNTIME_DIR",
                                              "HF_HOME"};

bool is_program(const std::string& path) {
  return fs::is_regular_file(path) && ::access(path.c_str(), X_OK) == 0;
}

bool is_found(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name);
  const char* const path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "/usr/bin:/bin", ':'))
    if (is_program((folder.empty() ? "." : folder) + "/" + name)) return true;
  return false;
}

}  // namespace

std::map<std::string, std::string> resolved_env(const HarnessConfig& config) {
  std::map<std::string, std::string> env = config.env;
  for (auto& [name, value] : env) {
    if (value.size() < 2 || value[0] != '$') continue;
    const char* const set = std::getenv(value.c_str() + 1);
    if (!set)
      fail(Exit::usage, {.what = fmt::format("the variable {} is not set", value.substr(1)),
                         .where = fmt::format("rollout.harness, env.{}", name),
                         .why = "a program that plays sessions gets its value",
                         .fix = "set the variable, or leave it out of env"});
    value = set;
  }
  return env;
}

std::vector<std::string> program_environment(const std::map<std::string, std::string>& env,
                                             const HarnessStart* start) {
  std::map<std::string, std::string> made;
  for (const char* name : kPassed)
    if (const char* value = std::getenv(name)) made[name] = value;
  if (start) {
    made["OPENAI_BASE_URL"] = start->base_url;
    made["ANTHROPIC_BASE_URL"] = start->anthropic_base_url;
    made["OPENAI_API_KEY"] = made["ANTHROPIC_API_KEY"] = start->api_key;
    made["OPENAI_MODEL"] = made["ANTHROPIC_MODEL"] = start->model;
    made["ANTHROPIC_SMALL_FAST_MODEL"] = made["ANTHROPIC_DEFAULT_HAIKU_MODEL"] = "policy-untrained";
  }
  for (const auto& [name, value] : env) made[name] = value;
  std::vector<std::string> variables;
  for (const auto& [name, value] : made) variables.push_back(name + "=" + value);
  return variables;
}

std::vector<std::string> program_words(const std::vector<std::string>& argv) {
  std::vector<std::string> words = argv;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool looked_up = i == 0 && words[i].find('/') == std::string::npos;  // in PATH
    std::error_code error;
    if (!looked_up && words[i][0] != '/' && fs::is_regular_file(words[i], error))
      words[i] = fs::absolute(words[i]).lexically_normal().string();
  }
  if (!is_found(words[0]))
    fail(Exit::usage, {.what = fmt::format("the program {} cannot be started", words[0]),
                       .where = fmt::format("rollout.harness, argv = {}", fmt::join(argv, " ")),
                       .why = "no file of that name can be executed",
                       .fix = "name a program in PATH, or a path from the working folder of the run"});
  return words;
}

}  // namespace temper

#include "src/rl/trajectory_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "src/core/check.h"
#include "src/core/text/answer_text.h"
#include "src/core/text/block_reader.h"
#include "src/core/text/file_lines.h"
#include "src/core/text/short_number.h"

namespace temper {
namespace {

constexpr int64_t kMaxLineBytes = int64_t{256} << 20;
constexpr int64_t kMaxIndex = int64_t{1} << 30;  // of groups and samples
constexpr int64_t kMaxVersion = int64_t{1} << 40;

Json logprobs_to_json(const std::vector<double>& values, size_t response_tokens) {
  if (values.empty() && response_tokens > 0) return nullptr;
  return values;
}

Json versions_to_json(const Trajectory& t) {
  if (t.response.versions.empty()) return nullptr;
  auto [low, high] = std::minmax_element(t.response.versions.begin(), t.response.versions.end());
  return {low->first, high->first};
}

/// Reads the keys of one line; every defect names the key.
class LineReader {
 public:
  LineReader(const Json& line, const std::string& where) : line_(line), where_(where) {
    if (!line.is_object()) wrong("the line", fmt::format("it is a JSON {}, not an object", line.type_name()));
  }

  [[noreturn]] void wrong(const std::string& key, const std::string& why) const {
    fail(Exit::data,
         {.what = fmt::format("wrong {} in a rollout file", key),
          .where = where_,
          .why = why,
          .fix = "see the rollout format: group, prompt_tokens, response_tokens and reward are needed"});
  }

  /// nullptr when the key is absent or null.
  const Json* find(const char* key) const {
    auto found = line_.find(key);
    return found == line_.end() || found->is_null() ? nullptr : &*found;
  }

  bool is_null(const char* key) const {
    auto found = line_.find(key);
    return found != line_.end() && found->is_null();
  }

  const Json& need(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) wrong(key, "the key is missing");
    return *value;
  }

  const Json& array(const char* key, const Json& value) const {
    if (!value.is_array()) wrong(key, fmt::format("it is a JSON {}, not an array", value.type_name()));
    return value;
  }

  int64_t integer(const char* key, const Json& value, int64_t high, int64_t index = -1) const {
    // An unsigned value beyond int64_t comes out negative and is refused as well.
    const bool legal = value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= high;
    if (!legal) wrong(name(key, index), fmt::format("{} is not an integer in [0, {}]", shown(value), high));
    return value.get<int64_t>();
  }

  double number(const char* key, const Json& value, int64_t index = -1) const {
    const bool legal = value.is_number() && std::isfinite(value.get<double>());
    if (!legal) wrong(name(key, index), fmt::format("{} is not a finite number", shown(value)));
    return value.get<double>();
  }

  std::string text(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) wrong(key, fmt::format("it is a JSON {}, not text", value->type_name()));
    return value->get<std::string>();
  }

 private:
  static std::string name(const char* key, int64_t index) {
    return index < 0 ? key : fmt::format("{}[{}]", key, index);
  }
  static std::string shown(const Json& value) {
    std::string text = dump_json_line(value);
    return text.size() <= 80 ? text : fmt::format("a JSON {} of {} bytes", value.type_name(), text.size());
  }
  const Json& line_;
  const std::string& where_;
};

std::vector<int32_t> read_tokens(const LineReader& reader, const char* key, const ReplayLimits& limits) {
  const int64_t largest =
      limits.vocab_size > 0 ? limits.vocab_size - 1 : int64_t{std::numeric_limits<int32_t>::max()};
  const Json& array = reader.array(key, reader.need(key));
  std::vector<int32_t> tokens;
  tokens.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    tokens.push_back(static_cast<int32_t>(reader.integer(key, array[i], largest, index)));
  }
  return tokens;
}

void check_length(const LineReader& reader, const char* key, size_t found, size_t expected) {
  if (found == expected) return;
  reader.wrong(key, fmt::format("it has {} entries, response_tokens has {}", found, expected));
}

std::vector<uint8_t> read_mask(const LineReader& reader, size_t n) {
  const Json* value = reader.find("response_mask");
  if (value == nullptr) return std::vector<uint8_t>(n, 1);
  const Json& array = reader.array("response_mask", *value);
  check_length(reader, "response_mask", array.size(), n);
  std::vector<uint8_t> mask;
  for (size_t i = 0; i < n; ++i) {
    const auto index = static_cast<int64_t>(i);
    mask.push_back(static_cast<uint8_t>(reader.integer("response_mask", array[i], 1, index)));
  }
  return mask;
}

std::vector<double> read_logprobs(const LineReader& reader, const char* key,
                                  const std::vector<uint8_t>& mask) {
  const Json* value = reader.find(key);
  if (value == nullptr) return {};
  const Json& array = reader.array(key, *value);
  check_length(reader, key, array.size(), mask.size());
  std::vector<double> logprobs;
  for (size_t i = 0; i < mask.size(); ++i) {
    const bool ignored = mask[i] == 0 && array[i].is_null();
    logprobs.push_back(ignored ? 0 : reader.number(key, array[i], static_cast<int64_t>(i)));
  }
  return logprobs;
}

void read_reward_parts(const LineReader& reader, Trajectory& t) {
  const Json* parts = reader.find("reward_parts");
  if (parts == nullptr) return;
  if (!parts->is_object()) reader.wrong("reward_parts", "it is not an object of numbers");
  for (const auto& [name, value] : parts->items()) {
    t.reward_parts.emplace_back(name, reader.number(("reward_parts." + name).c_str(), value));
  }
}

/// By lag, see the header. A replay writes versions below 0 for tokens that are older than itself.
std::vector<std::pair<int64_t, int32_t>> read_versions(const LineReader& reader, size_t n) {
  const Json *step = reader.find("step"), *range = reader.find("policy_version"),
             *runs = reader.find("policy_versions");
  if (step == nullptr || range == nullptr || n == 0) return {};
  const int64_t newest = reader.integer("step", *step, kMaxVersion) - 1;
  const auto lag = [&](const char* key, const Json& value) {
    const bool legal = value.is_number_integer() && std::abs(value.get<double>()) <= kMaxVersion;
    if (!legal) reader.wrong(key, "it holds something else than versions");
    return value.get<int64_t>() - newest;
  };
  if (reader.array("policy_version", *range).size() != 2)
    reader.wrong("policy_version", "it is not [oldest, newest]");
  const int64_t low = lag("policy_version", (*range)[0]), high = lag("policy_version", (*range)[1]);
  if (runs == nullptr && low != high) return {};
  if (runs == nullptr) return {{low, static_cast<int32_t>(n)}};
  std::vector<std::pair<int64_t, int32_t>> versions;
  int64_t left = static_cast<int64_t>(n);
  for (const Json& run : reader.array("policy_versions", *runs)) {
    if (!run.is_array() || run.size() != 2)
      reader.wrong("policy_versions", "an entry is not [version, tokens]");
    const int64_t tokens = reader.integer("policy_versions", run[1], left);
    versions.emplace_back(lag("policy_versions", run[0]), static_cast<int32_t>(tokens));
    left -= tokens;
  }
  if (left != 0) reader.wrong("policy_versions", fmt::format("{} response tokens have no version", left));
  return versions;
}

void read_routes(const LineReader& reader, const ReplayLimits& limits, Trajectory& t) {
  const Json* value = reader.find("routes");
  if (value == nullptr && !limits.needs_routes) return;
  const auto rows = static_cast<int64_t>(t.prompt_tokens.size() + t.response.tokens.size()) - 1;
  if (t.response.tokens.empty()) return;
  if (value == nullptr)
    reader.wrong("routes", "the key is missing, and moe.replay = \"rollout\" replays what it holds");
  const std::string why = routes_from_json(*value, limits.routes, rows, t.response.routes);
  if (!why.empty()) reader.wrong("routes", why);
}

FinishReason read_finish_reason(const LineReader& reader) {
  std::string text = reader.text("finish_reason");
  if (text.empty() || text == "stop") return FinishReason::stop;
  if (text != "length") reader.wrong("finish_reason", "it is neither \"stop\" nor \"length\"");
  return FinishReason::length;
}

[[noreturn]] void fail_duplicate(const std::string& where, int64_t group, int64_t sample) {
  fail(Exit::data, {.what = "a response appears twice in a rollout file",
                    .where = where,
                    .why = fmt::format("group {} already has a sample {}", group, sample),
                    .fix = "give every response of a group its own sample number, or leave sample out"});
}

bool has_a_line(const std::string& path) {
  BlockReader file(path);
  for (std::string block; file.next(block);)
    if (block.find_first_not_of(" \t\r\n") != std::string::npos) return true;
  return false;
}

/// Samples of one group while a file is read.
struct PendingGroup {
  std::map<std::pair<int64_t, int32_t>, Trajectory> samples;  // by sample number and fork

  int64_t next_number() const { return samples.empty() ? 0 : samples.rbegin()->first.first + 1; }
};

void add_session(const SessionNote& session, Json& line) {
  line["fork"] = session.fork;
  line["turns"] = session.turns;
  if (!session.environment.empty()) line["environment"] = session.environment;
  line["end_reason"] = session.end_reason;
  if (!session.requests.empty()) line["requests"] = Json::parse(session.requests);
}

void read_session(const LineReader& reader, Trajectory& t) {
  const Json* fork = reader.find("fork");
  if (!fork) return;
  SessionNote& session = t.session.emplace();
  session.fork = static_cast<int32_t>(reader.integer("fork", *fork, kMaxIndex));
  if (const Json* turns = reader.find("turns"))
    session.turns = static_cast<int32_t>(reader.integer("turns", *turns, kMaxIndex));
  session.environment = reader.text("environment");
  session.end_reason = reader.text("end_reason");
  if (const Json* requests = reader.find("requests")) session.requests = dump_json_line(*requests);
}

/// Numbers that run on without a gap; trajectories of one session have one. The first of each session is no
/// fork: what stands for it in statistics may have been taken out of the file.
void number_samples(PendingGroup& from, Group& group, int32_t number) {
  int32_t sample = -1;
  int64_t before = -1;
  for (auto& [key, t] : from.samples) {
    const bool again = t.is_fork() && key.first == before;
    if (!again) ++sample;
    if (t.session && !again) t.session->fork = 0;
    before = key.first;
    t.group = number;
    t.data_position = number;
    t.sample = sample;
    group.samples.push_back(std::move(t));
  }
}

}  // namespace

Json trajectory_to_json(const Trajectory& t, int64_t step) {
  Json parts = Json::object();
  for (const auto& [name, value] : t.reward_parts) parts[name] = value;
  Json line;
  line["step"] = step;
  line["group"] = t.group;
  line["sample"] = t.sample;
  line["prompt_tokens"] = t.prompt_tokens;
  line["response_tokens"] = t.response.tokens;
  line["response_mask"] = t.response.mask;
  line["logprobs"] = logprobs_to_json(t.response.logprobs, t.response.tokens.size());
  line["ref_logprobs"] = logprobs_to_json(t.ref_logprobs, t.response.tokens.size());
  if (!t.teacher_logprobs.empty()) line["teacher_logprobs"] = t.teacher_logprobs;
  line["reward"] = t.excluded ? Json() : Json(t.reward);
  line["raw_reward"] = t.excluded ? Json() : Json(t.raw_reward);
  line["reward_parts"] = std::move(parts);
  line["advantage"] = t.advantage;
  if (!t.advantages.empty()) line["advantages"] = t.advantages;
  line["policy_version"] = versions_to_json(t);
  line["finish_reason"] = std::string(finish_reason_name(t.response.finish));
  line["prompt"] = t.prompt;
  line["response"] = t.response.text;
  std::optional<Json> answers = structured_answer(t.answer);
  line["answer"] = answers ? std::move(*answers) : Json(t.answer);
  if (!t.domain.empty()) line["domain"] = t.domain;
  if (t.response.versions.size() > 1) line["policy_versions"] = t.response.versions;
  if (!t.response.routes.empty()) line["routes"] = routes_to_json(t.response.routes);
  if (t.session) add_session(*t.session, line);
  return line;
}

Trajectory trajectory_from_json(const Json& line, const std::string& where, const ReplayLimits& limits) {
  LineReader reader(line, where);
  Trajectory t;
  t.group = static_cast<int32_t>(reader.integer("group", reader.need("group"), kMaxIndex));
  if (const Json* sample = reader.find("sample")) {
    t.sample = static_cast<int32_t>(reader.integer("sample", *sample, kMaxIndex));
  }
  t.data_position = t.group;
  t.prompt_tokens = read_tokens(reader, "prompt_tokens", limits);
  t.response.tokens = read_tokens(reader, "response_tokens", limits);
  if (t.prompt_tokens.empty())
    reader.wrong("prompt_tokens", "it is empty: the first response token needs a prompt");
  const size_t tokens = t.prompt_tokens.size() + t.response.tokens.size();
  if (limits.context_tokens > 0 && tokens > static_cast<size_t>(limits.context_tokens)) {
    reader.wrong("response_tokens",
                 fmt::format("{} prompt and {} response tokens are more than the context of {}",
                             t.prompt_tokens.size(), t.response.tokens.size(), limits.context_tokens));
  }
  t.response.mask = read_mask(reader, t.response.tokens.size());
  t.response.logprobs = read_logprobs(reader, "logprobs", t.response.mask);
  t.ref_logprobs = read_logprobs(reader, "ref_logprobs", t.response.mask);
  t.teacher_logprobs = read_logprobs(reader, "teacher_logprobs", t.response.mask);
  t.response.versions = read_versions(reader, t.response.tokens.size());
  t.excluded = reader.is_null("reward") && reader.is_null("raw_reward");
  if (!t.excluded) t.reward = reader.number("reward", reader.need("reward"));
  const Json* raw = reader.find("raw_reward");
  t.raw_reward = raw == nullptr ? t.reward : reader.number("raw_reward", *raw);
  read_reward_parts(reader, t);
  t.response.finish = read_finish_reason(reader);
  read_routes(reader, limits, t);
  read_session(reader, t);
  t.prompt = reader.text("prompt");
  t.domain = reader.text("domain");
  t.response.text = reader.text("response");
  const Json* answer = reader.find("answer");
  t.answer = answer && answer->is_structured() ? answer_text(*answer) : reader.text("answer");
  return t;
}

std::vector<Group> read_rollouts(const std::string& path, const ReplayLimits& limits, FileDigest* held) {
  std::map<int64_t, PendingGroup> pending;  // by group number
  const auto take = [&](const std::string& line, int64_t number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    const std::string where = fmt::format("{}:{}", path, number);
    const Json json = parse_json(line, where);
    Trajectory t = trajectory_from_json(json, where, limits);
    PendingGroup& group = pending[t.group];
    auto sample = json.find("sample");
    if (sample == json.end() || sample->is_null()) {
      t.sample = static_cast<int32_t>(group.next_number());
    }
    const std::pair key{int64_t{t.sample}, t.session ? t.session->fork : 0};
    if (group.samples.contains(key)) fail_duplicate(where, t.group, t.sample);
    group.samples.emplace(key, std::move(t));
  };
  for_each_line(path, kMaxLineBytes, take, held);
  std::vector<Group> groups;
  for (auto& [unused, from] : pending) {
    Group group;
    number_samples(from, group, static_cast<int32_t>(groups.size()));
    groups.push_back(std::move(group));
  }
  return groups;
}

void require_responses(const std::vector<std::string>& files) {
  if (std::any_of(files.begin(), files.end(), has_a_line)) return;
  fail(Exit::data,
       {.what = files.size() == 1 ? "the rollout file is empty" : "every rollout file is empty",
        .where = files.front(),
        .why = count_text(std::ssize(files), "file") + " without a response: there is nothing to train on",
        .fix = "give files written under rollouts/ of a run folder"});
}

}  // namespace temper

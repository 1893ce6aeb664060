#include "src/rl/trajectory_bytes.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "src/core/check.h"

namespace temper {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void put(std::string& bytes, T value) {
  static_assert(std::is_arithmetic_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename Container>
void put_all(std::string& bytes, const Container& values) {
  put<uint64_t>(bytes, values.size());
  if (values.empty()) return;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(*values.data()));
}

std::string_view take_bytes(std::string_view& bytes, uint64_t count) {
  CHECK(count <= bytes.size(), "a trajectory message ends early: {} bytes left, {} needed", bytes.size(),
        count);
  std::string_view head = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return head;
}

template <typename T>
T take(std::string_view& bytes) {
  T value;
  std::memcpy(&value, take_bytes(bytes, sizeof(T)).data(), sizeof(T));
  return value;
}

/// A count of items that take at least `item_bytes` each in what is left.
uint64_t take_count(std::string_view& bytes, size_t item_bytes) {
  const auto count = take<uint64_t>(bytes);
  CHECK(count <= bytes.size() / item_bytes,
        "a trajectory message announces {} items of {} bytes, {} bytes left", count, item_bytes,
        bytes.size());
  return count;
}

template <typename Container>
Container take_all(std::string_view& bytes) {
  Container values;
  constexpr size_t kItem = sizeof(typename Container::value_type);
  values.resize(take_count(bytes, kItem));
  std::string_view content = take_bytes(bytes, values.size() * kItem);
  if (!content.empty()) std::memcpy(values.data(), content.data(), content.size());
  return values;
}

/// Beside the finish reason: older checkpoints have no room of their own for them.
constexpr uint8_t kExcluded = 0x80;
constexpr uint8_t kTaught = 0x40;     // log-probs of a teacher stand at the end
constexpr uint8_t kRoutes = 0x20;     // routes come next
constexpr uint8_t kHasDomain = 0x10;  // one more text stands at the end
constexpr uint8_t kOfSession = 0x08;  // what is known of its session stands at the end

uint8_t finish_byte(const Trajectory& t) {
  return static_cast<uint8_t>(static_cast<uint8_t>(t.response.finish) | (t.excluded ? kExcluded : 0) |
                              (t.teacher_logprobs.empty() ? 0 : kTaught) |
                              (t.response.routes.empty() ? 0 : kRoutes) |
                              (t.domain.empty() ? 0 : kHasDomain) | (t.session ? kOfSession : 0));
}

/// Named numbers.
using Parts = std::vector<std::pair<std::string, double>>;

void put_parts(std::string& bytes, const Parts& parts) {
  put<uint64_t>(bytes, parts.size());
  for (const auto& [name, value] : parts) {
    put_all(bytes, name);
    put(bytes, value);
  }
}

Parts take_parts(std::string_view& bytes) {
  Parts parts(take_count(bytes, sizeof(uint64_t) + sizeof(double)));
  for (auto& [name, value] : parts) {
    name = take_all<std::string>(bytes);
    value = take<double>(bytes);
  }
  return parts;
}

void put_session(std::string& bytes, const SessionNote& session) {
  put(bytes, session.fork);
  put(bytes, session.turns);
  put_all(bytes, session.environment);
  put_all(bytes, session.end_reason);
  put_all(bytes, session.requests);
  put<uint8_t>(bytes, session.excluded);
  put<uint8_t>(bytes, session.reward.has_value());
  put(bytes, session.reward.value_or(0));
  put_parts(bytes, session.parts);
}

SessionNote take_session(std::string_view& bytes) {
  SessionNote session;
  session.fork = take<int32_t>(bytes);
  session.turns = take<int32_t>(bytes);
  session.environment = take_all<std::string>(bytes);
  session.end_reason = take_all<std::string>(bytes);
  session.requests = take_all<std::string>(bytes);
  session.excluded = take<uint8_t>(bytes) != 0;
  const bool rewarded = take<uint8_t>(bytes) != 0;
  const auto reward = take<double>(bytes);
  if (rewarded) session.reward = reward;
  session.parts = take_parts(bytes);
  return session;
}

/// What is said beside the finish reason.
uint8_t take_finish_reason(std::string_view& bytes, Trajectory& t) {
  const auto value = take<uint8_t>(bytes),
             reason =
                 static_cast<uint8_t>(value & ~(kExcluded | kTaught | kRoutes | kHasDomain | kOfSession));
  CHECK(reason <= static_cast<uint8_t>(FinishReason::unfinished), "finish reason {} in a trajectory message",
        reason);
  t.response.finish = static_cast<FinishReason>(reason);
  t.excluded = (value & kExcluded) != 0;
  return value;
}

}  // namespace

void append_trajectory(std::string& bytes, const Trajectory& t) {
  put(bytes, t.data_position);
  put(bytes, t.group);
  put(bytes, t.sample);
  put_all(bytes, t.prompt_tokens);
  put_all(bytes, t.response.tokens);
  put_all(bytes, t.response.mask);
  put_all(bytes, t.response.logprobs);
  put_all(bytes, t.ref_logprobs);
  put<uint64_t>(bytes, t.response.versions.size());
  for (const auto& [version, count] : t.response.versions) {
    put(bytes, version);
    put(bytes, count);
  }
  put(bytes, finish_byte(t));
  if (!t.response.routes.empty()) put_all(bytes, t.response.routes);
  put_all(bytes, t.prompt);
  put_all(bytes, t.response.text);
  put_all(bytes, t.answer);
  put(bytes, t.raw_reward);
  put(bytes, t.reward);
  put_parts(bytes, t.reward_parts);
  put(bytes, t.advantage);
  if (!t.teacher_logprobs.empty()) put_all(bytes, t.teacher_logprobs);
  if (!t.domain.empty()) put_all(bytes, t.domain);
  if (t.session) put_session(bytes, *t.session);
}

Trajectory take_trajectory(std::string_view& bytes) {
  Trajectory t;
  t.data_position = take<int64_t>(bytes);
  t.group = take<int32_t>(bytes);
  t.sample = take<int32_t>(bytes);
  t.prompt_tokens = take_all<std::vector<int32_t>>(bytes);
  t.response.tokens = take_all<std::vector<int32_t>>(bytes);
  t.response.mask = take_all<std::vector<uint8_t>>(bytes);
  t.response.logprobs = take_all<std::vector<double>>(bytes);
  t.ref_logprobs = take_all<std::vector<double>>(bytes);
  t.response.versions.resize(take_count(bytes, sizeof(int64_t) + sizeof(int32_t)));
  for (auto& [version, count] : t.response.versions) {
    version = take<int64_t>(bytes);
    count = take<int32_t>(bytes);
  }
  const uint8_t said = take_finish_reason(bytes, t);
  if ((said & kRoutes) != 0) t.response.routes = take_all<std::vector<uint8_t>>(bytes);
  t.prompt = take_all<std::string>(bytes);
  t.response.text = take_all<std::string>(bytes);
  t.answer = take_all<std::string>(bytes);
  t.raw_reward = take<double>(bytes);
  t.reward = take<double>(bytes);
  t.reward_parts = take_parts(bytes);
  t.advantage = take<double>(bytes);
  if ((said & kTaught) != 0) t.teacher_logprobs = take_all<std::vector<double>>(bytes);
  if ((said & kHasDomain) != 0) t.domain = take_all<std::string>(bytes);
  if ((said & kOfSession) != 0) t.session = take_session(bytes);
  return t;
}

std::string groups_to_bytes(std::span<const Group> groups) {
  std::string bytes;
  put<uint64_t>(bytes, groups.size());
  for (const Group& group : groups) {
    put<uint64_t>(bytes, group.samples.size());
    for (const Trajectory& t : group.samples) append_trajectory(bytes, t);
  }
  return bytes;
}

std::vector<Group> groups_from_bytes(std::string_view bytes) {
  std::vector<Group> groups(take_count(bytes, sizeof(uint64_t)));
  for (Group& group : groups) {
    // Read one by one: a false count then fails on missing bytes before memory is taken for it.
    for (uint64_t left = take<uint64_t>(bytes); left > 0; --left)
      group.samples.push_back(take_trajectory(bytes));
  }
  CHECK(bytes.empty(), "{} bytes after the last group of a message", bytes.size());
  return groups;
}

}  // namespace temper

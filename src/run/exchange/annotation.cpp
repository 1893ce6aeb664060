#include "src/run/exchange/annotation.h"

#include <algorithm>
#include <array>

#include "src/core/check.h"
#include "src/core/json.h"

namespace temper {
namespace {

/// False when the sample has it already. `name`: what follows the field's name.
using Put = bool (*)(Trajectory& t, std::string_view name, const std::vector<double>& values);

bool put_logprobs(std::vector<double>& to, const char* what, const Trajectory& t,
                  const std::vector<double>& values) {
  CHECK(values.size() == t.response.tokens.size(), "{} {} of {} tokens", values.size(), what,
        t.response.tokens.size());
  if (!to.empty()) return false;
  to = values;
  return true;
}
bool put_ref_logprobs(Trajectory& t, std::string_view, const std::vector<double>& values) {
  return put_logprobs(t.ref_logprobs, "reference log-probs", t, values);
}
bool put_teacher_logprobs(Trajectory& t, std::string_view, const std::vector<double>& values) {
  return put_logprobs(t.teacher_logprobs, "teacher log-probs", t, values);
}

bool put_reward_part(Trajectory& t, std::string_view name, const std::vector<double>& values) {
  CHECK(values.size() == 1, "{} values of the reward part {}", values.size(), name);
  for (const auto& [known, value] : t.reward_parts)
    if (known == name) return false;
  t.reward_parts.emplace_back(name, values.front());
  return true;
}

struct Field {
  std::string_view name;  // ends with '/': the field's own name follows
  Put put;
};
constexpr std::array kFields{Field{"ref_logprobs", put_ref_logprobs},
                             Field{"teacher_logprobs", put_teacher_logprobs},
                             Field{"reward_parts/", put_reward_part}};

}  // namespace

void apply(const Annotation& annotation, Trajectory& sample) {
  const std::string_view field = annotation.field;
  for (const Field& row : kFields) {
    if (row.name.ends_with('/') ? !field.starts_with(row.name) : field != row.name) continue;
    CHECK(row.put(sample, field.substr(row.name.size()), annotation.values),
          "{} of prompt {}, sample {} came twice", field, annotation.data_position, annotation.sample);
    return;
  }
  CHECK(false, "prompt {} is annotated with {}, which no trajectory has", annotation.data_position, field);
}

std::string annotations_to_bytes(const std::vector<Annotation>& annotations) {
  Json heads = Json::array();
  for (const Annotation& a : annotations)
    heads.push_back({a.data_position, a.sample, a.field, a.values.size()});
  std::string bytes = dump_json_line(heads) + "\n";
  for (const Annotation& a : annotations)
    bytes.append(reinterpret_cast<const char*>(a.values.data()), a.values.size() * sizeof(double));
  return bytes;
}

std::vector<Annotation> annotations_from_bytes(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  CHECK(end != std::string_view::npos, "annotations without their list");
  const Json heads = parse_json(bytes.substr(0, end), "list of annotations");
  bytes.remove_prefix(end + 1);
  std::vector<Annotation> annotations;
  for (const Json& head : heads) {
    const auto count = head.at(3).get<size_t>();
    CHECK(count <= bytes.size() / sizeof(double), "{} values announced, {} bytes are left", count,
          bytes.size());
    Annotation a{head.at(0).get<int64_t>(), head.at(1).get<int32_t>(), head.at(2).get<std::string>(),
                 std::vector<double>(count)};
    std::copy_n(bytes.data(), count * sizeof(double), reinterpret_cast<char*>(a.values.data()));
    bytes.remove_prefix(count * sizeof(double));
    annotations.push_back(std::move(a));
  }
  CHECK(bytes.empty(), "{} bytes after the last annotation", bytes.size());
  return annotations;
}

}  // namespace temper

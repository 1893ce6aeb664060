#include "src/run/record/run_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/rl/trajectory_bytes.h"
#include "src/run/record/run_folder.h"

namespace temper {

std::string ahead_name(int64_t step) { return "ahead/" + step_name(step); }
std::string open_name(int64_t step) { return "open/" + step_name(step); }

/// As a tensor: the number of bytes (8 bytes), then those, filled up with zeros to words. Each rank writes
/// its share.
void CheckpointWriter::bytes(const std::string& name, std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const Tensor words = memory_.make({2 + (size + 3) / 4}, DType::i32);
  std::memset(words.raw(), 0, static_cast<size_t>(words.size()) * 4);
  std::memcpy(words.raw(), &size, sizeof size);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(words.as<int32_t>() + 2));
  const FlatRange mine = shard_range(words.size(), index_, count_);
  tensor(
      {name, {words.size()}, mine, make_tensor(words.as<int32_t>() + mine.begin, DType::i32, {mine.size()})});
}

/// Ranks of several roles know several counts and texts; of one that several know the first rank's stands.
SaveResult CheckpointWriter::write(const std::string& folder, int64_t step, bool optional) {
  Json meta = Json::object();
  for (const std::string& said :
       comm_.all_gather(dump_json_line(meta_), "counts and texts of a checkpoint")) {
    const Json of_rank = parse_json(said, "message between ranks");
    for (const auto& [name, value] : of_rank.items())
      if (!meta.contains(name)) append_member(meta, name, value);
  }
  try {
    return save_checkpoint(folder, step, tensors_, meta, comm_, {Numbers::finite, optional});
  } catch (const Error& e) {
    if (e.code() != Exit::numerics) throw;
    for (const auto& dump : dumps_) dump();
    comm_.barrier("dump of a step whose numbers are not finite");
    Problem problem = e.problem();
    if (!dumps_.empty())
      problem.why += "; what the step was trained on was written to nonfinite/ in the run folder";
    fail(Exit::numerics, std::move(problem));
  }
}

/// Those who read bytes that ranks send take what is wrong with them for a bug; these came from a disk.
void CheckpointReader::refuse(const std::string& name, const std::string& why) const {
  constexpr std::string_view kBug = "internal error: ";
  const bool as_bug = why.starts_with(kBug);
  fail(Exit::data, {.what = "an entry of a checkpoint cannot be read",
                    .where = path() + ": " + name,
                    .why = as_bug ? why.substr(kBug.size(), why.find('\n') - kBug.size()) : why,
                    .fix = "use another checkpoint; `temper verify --checkpoint DIR` lists what is wrong"});
}

std::string_view CheckpointReader::bytes(const std::string& name, Arena& memory) const {
  if (!has(name)) refuse(name, "it is missing");
  const std::vector<int64_t>& shape = manifest_.tensors().at(name).shape;
  if (shape.size() != 1 || shape[0] < 2)
    refuse(name, fmt::format("{} dimensions; one, of at least 2 words, is wanted", shape.size()));
  const Tensor words = memory.make({shape[0]}, DType::i32);
  fill({{name, shape, {0, shape[0]}, words}});
  int64_t size = 0;
  std::memcpy(&size, words.raw(), sizeof size);
  if (size < 0 || size > 4 * (words.size() - 2))
    refuse(name, fmt::format("{} bytes in {} words", size, words.size()));
  return {reinterpret_cast<const char*>(words.as<int32_t>() + 2), static_cast<size_t>(size)};
}

namespace {

std::string sample_defect(const Trajectory& t) {
  const size_t n = t.response.tokens.size();
  const auto legal = [&](const auto& list) { return list.empty() || list.size() == n; };
  const auto finite = [](const auto& list) {
    return std::all_of(list.begin(), list.end(), [](double v) { return std::isfinite(v); });
  };
  const auto negative = [](const std::vector<int32_t>& ids) {
    return std::any_of(ids.begin(), ids.end(), [](int32_t id) { return id < 0; });
  };
  int64_t versions = 0;
  for (const auto& [version, tokens] : t.response.versions) versions += tokens < 0 ? -1 : tokens;
  if (t.prompt_tokens.empty()) return "its prompt is empty";
  if (negative(t.prompt_tokens) || negative(t.response.tokens)) return "a token id is negative";
  if (t.response.mask.size() != n)
    return fmt::format("{} mask values of {} tokens", t.response.mask.size(), n);
  if (!legal(t.response.logprobs) || !legal(t.ref_logprobs) || !legal(t.teacher_logprobs))
    return fmt::format("log-probs are not {}", n);
  if (!finite(t.response.logprobs) || !finite(t.ref_logprobs) || !finite(t.teacher_logprobs) ||
      !std::isfinite(t.reward) || !std::isfinite(t.raw_reward))
    return "a log-prob or a reward is not finite";
  if (!t.response.versions.empty() && versions != static_cast<int64_t>(n))
    return fmt::format("its versions are of {} tokens, it has {}", versions, n);
  return "";
}

}  // namespace

bool is_extra(const std::string& checkpoint) {
  try {
    const CheckpointReader reader(checkpoint);
    return reader.has_meta(kByClock) || reader.has_meta(kForBest);
  } catch (const Error&) {  // damaged: as any other
    return false;
  }
}

void check_groups(const std::vector<Group>& groups, bool finished) {
  int64_t last = -1;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto refuse_group = [&](const std::string& why) {
      throw std::runtime_error(fmt::format("group {}: {}", g, why));
    };
    const std::vector<Trajectory>& samples = groups[g].samples;
    if (samples.empty()) refuse_group("it has no samples");
    const int64_t position = samples.front().data_position;
    if (position <= last) refuse_group(fmt::format("data position {} comes after {}", position, last));
    last = position;
    bool open = false;
    int32_t sample = -1;
    for (size_t i = 0; i < samples.size(); ++i) {
      const Trajectory& t = samples[i];
      if (!t.is_fork()) ++sample;
      if (t.data_position != position || t.sample != sample)
        refuse_group(
            fmt::format("sample {} is said to be sample {} of prompt {}", sample, t.sample, t.data_position));
      if (const std::string why = sample_defect(t); !why.empty())
        refuse_group(fmt::format("sample {}: {}", sample, why));
      open = open || t.response.finish == FinishReason::unfinished;
    }
    if (open && finished) refuse_group("it is not finished");
  }
}

std::vector<Group> read_unfinished(const CheckpointReader& checkpoint) {
  if (!checkpoint.has(kUnfinished)) return {};
  return checkpoint.parsed(kUnfinished, [](std::string_view bytes) {
    std::vector<Group> groups = groups_from_bytes(bytes);
    check_groups(groups, /*finished=*/false);
    return groups;
  });
}

}  // namespace temper

#include "src/run/record/run_checkpoint.h"

#include <cstring>

#include "src/core/check.h"
#include "src/core/file.h"
#include "src/core/file.h"
#include "src/rl/trajectory_bytes.h"
#include "src/run/record/run_folder.h"

namespace temper {

std::string ahead_name(int64_t step) { return "ahead/" + step_name(step); }

/// As a tensor: the number of bytes (8 bytes), then those, filled up with zeros to words. Each rank writes
/// its share.
void CheckpointWriter::bytes(const std::string& name, std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const Tensor words = memory_.make({2 + (size + 3) / 4}, DType::i32);
  std::memset(words.raw(), 0, static_cast<size_t>(words.size()) * 4);
  std::memcpy(words.raw(), &size, sizeof size);
  std::memcpy(words.as<int32_t>() + 2, bytes.data(), bytes.size());
  const FlatRange mine = shard_range(words.size(), comm_.rank(), comm_.size());
  tensor(
      {name, {words.size()}, mine, make_tensor(words.as<int32_t>() + mine.begin, DType::i32, {mine.size()})});
}

void CheckpointWriter::write(const std::string& folder, int64_t step) {
  save_checkpoint(folder, step, tensors_, meta_, comm_);
}

void CheckpointReader::refuse(const std::string& name, const std::string& why) const {
  fail(Exit::data, {.what = "an entry of a checkpoint cannot be read",
                    .where = path() + ": " + name,
                    .why = why,
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

std::vector<Group> read_unfinished(const CheckpointReader& checkpoint) {
  if (!checkpoint.has(kUnfinished)) return {};
  return checkpoint.parsed(kUnfinished, groups_from_bytes);
}

}  // namespace temper

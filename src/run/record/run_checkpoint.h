#pragma once
// A checkpoint of a run as its roles see it: tensors by name, bytes, counts. Nothing is stored by rank, so
// another number of ranks, or another placement, can take it up. Names: `param/`, `opt/m/`, `opt/v/` and a
// parameter (master weights, moments); `ahead/step-XXXXXX`, a step that was generated and not trained;
// `open/step-XXXXXX`, what was finished of a step that a stop cut;
// `older/step-XXXXXX/` and a parameter, weights that a step which a stop cut goes on with;
// `unfinished`, the groups that the last generated step left; `roles/NAME/`, what another role adds.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/arena.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/rl/types.h"

namespace temper {

inline constexpr const char* kUnfinished = "unfinished";
inline constexpr const char* kAllowUnused = "allow_unused";  // model.allow_unused, where it is not empty
/// Text: the adapters that the run trains, as adapter_config.json says them; the checkpoint has their
/// weights, and none of their base, whose digest is "model_digest".
inline constexpr const char* kAdapters = "lora";
inline constexpr const char* kUnsaid =
    "unsaid";  // text: metrics of a step whose validation is yet to be made
inline constexpr const char* kByClock = "by_clock";     // count: checkpoint.every_minutes made it
inline constexpr const char* kForBest = "for_best";     // count: checkpoint.best alone made it
inline constexpr const char* kStandings = "standings";  // text: see run/record/standings.h
std::string ahead_name(int64_t step);
std::string open_name(int64_t step);

/// Gathers what roles save; the ranks of `comm`, all that have state, write it together.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(Comm& comm) : comm_(comm), index_(comm.rank()), count_(comm.size()) {}
  /// What follows is said by `count` of the ranks, of which this is number `index`: those of a role.
  void of_role(int index, int count) { index_ = index, count_ = count; }

  /// This rank's range of a tensor, empty where others hold all of it; its data stays as it is until `write`.
  void tensor(StateTensor tensor) {
    if (tensor.range.size() > 0) tensors_.push_back(std::move(tensor));
  }
  // The same on all ranks that say it.
  void bytes(const std::string& name, std::string_view bytes);
  void count(const std::string& key, int64_t value) { meta_[key] = value; }
  void text(const std::string& key, const std::string& value) { meta_[key] = value; }

  /// `dump` keeps what the step was made of, where its numbers are no state to go on from.
  void dump_if_refused(std::function<void()> dump) { dumps_.push_back(std::move(dump)); }

  /// Into `folder`, the run's checkpoints; all ranks call it. `optional`: one that cannot be written ends
  /// nothing. Numbers that are not finite: the dumps are made on all ranks before it ends with
  /// Exit::numerics.
  SaveResult write(const std::string& folder, int64_t step, bool optional);

 private:
  Comm& comm_;
  int index_, count_;
  Arena memory_;  // of `bytes`
  std::vector<StateTensor> tensors_;
  Json meta_ = Json::object();
  std::vector<std::function<void()>> dumps_;
};

/// A missing entry, or one of another kind or size, is Exit::data. Digests were compared before.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::string& checkpoint) : manifest_(Manifest::read(checkpoint)) {}

  const std::string& path() const { return manifest_.path(); }
  int64_t step() const { return manifest_.step(); }
  /// A tensor, or bytes.
  bool has(const std::string& name) const { return manifest_.tensors().contains(name); }
  /// Fills the ranges of `tensors`.
  void fill(const std::vector<StateTensor>& tensors) const { load_state(manifest_, tensors); }
  int64_t count(const std::string& key) const { return manifest_.meta_count(key); }
  std::string text(const std::string& key) const { return manifest_.meta_text(key); }
  /// A count or text.
  bool has_meta(const std::string& key) const { return manifest_.has_meta(key); }
  /// What `parse` makes of the bytes of an entry; Exit::data when it throws.
  template <class Parse>
  auto parsed(const std::string& name, Parse parse) const {
    Arena memory;
    const std::string_view all = bytes(name, memory);
    try {
      return parse(all);
    } catch (const std::exception& e) {
      refuse(name, e.what());
    }
  }

 private:
  std::string_view bytes(const std::string& name, Arena& memory) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

  Manifest manifest_;
};

/// One that the clock or checkpoint.best alone made is kept only while it is the newest, or the best.
bool is_extra(const std::string& checkpoint);

/// Throws what is wrong with groups that bytes say to be those of one step: digests match whatever was
/// written.
void check_groups(const std::vector<Group>& groups, bool finished);

/// Groups of all prompts, by data position; empty where the checkpoint has none. They are generated in part,
/// or whole and not scored.
std::vector<Group> read_unfinished(const CheckpointReader& checkpoint);

}  // namespace temper

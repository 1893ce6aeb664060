#pragma once
// Tensors that a model learns. All values lie in one flat buffer (storage dtype), all gradients in another
// (fp32, or fp64 in fp64 runs), unit by unit, in each in the order of the spec list: the optimizer,
// gradient reduction and checkpoints work on flat ranges, layers on the views. What is of one unit (the
// embedding, each layer, the head, of each what is trained and what is not, what is summed over other ranks,
// and what is in a wide type) is one flat range: what is reduced, gathered and sharded at a time. What is not
// trained has no gradients.
// With UnitShards gradients are made in a window, unit by unit, and only this rank's shard of their sums
// stays (ZeRO-2). Of the values, too (ZeRO-3), from `split_values` to `join_values`: whoever works with a
// unit then gathers it in its window first (nn/parallel/unit_gather.h).

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.h"
#include "src/core/ctx.h"
#include "src/core/tensor.h"
#include "src/nn/parallel/unit_shards.h"

namespace temper {

/// `rows` leading rows of a parameter and the Hugging Face tensor that they are (fused q,k,v or gate,up), or
/// the rows of it that follow those of the part before, where that has the same name.
/// `heads`: attention heads that they are of, which stay whole; 0: rows are alike.
struct HfPart {
  std::string name;
  int64_t rows = 0;
  int64_t heads = 0;
};

/// uniform: in +-1 / sqrt(columns). log_uniform: ln of a number from 0.01 to 16.
enum class Init { normal, ones, zeros, uniform, log_uniform };

/// Adapters lie beside the weights of a base, which never change: a folder has them, and they go nowhere.
enum class Whose { model, base, adapter };

/// How tensor parallel ranks share a parameter: not at all; each its equal share of the rows of every part,
/// where neighbours have the same head if there are fewer heads than ranks; or the vocabulary in whole chunks
/// of its ids (kVocabularyChunk), as evenly as they go, some ranks with none; or neighbouring blocks of rows,
/// an expert's each, over the ranks of another axis (Axis::ep).
enum class Shard { none, rows, vocabulary, experts };

/// A rank among those that share parameters: its share of those of its units. It has no rows of others.
struct ShardPlace {
  int rank = 0, ranks = 1;  // along tp
  UnitSet units = {};
  int expert_rank = 0, expert_ranks = 1;  // along ep
};

/// Names, shape and rules of one parameter: drives allocation, import, export, checkpoints and decay.
struct ParamSpec {
  std::string name;            // "layers.3.attn.wqkv"
  std::vector<HfPart> parts;   // parts.rows add up to shape[0]
  std::vector<int64_t> shape;  // 1-d or 2-d; of the whole parameter, whatever a rank has of it
  std::string unit = {};       // "layers.3"
  int64_t unit_number = 0;
  int64_t also_in = -1;  // number of a unit that has a copy: a tied head's, where its embedding is elsewhere
  Shard shard = Shard::none;
  bool partial_grad = false;  // whole on every rank, each with the gradient of its own heads or tokens only
  bool grad_by_columns = false;     // ranks have rows, and first make the gradients of their columns
  bool trained = true;              // false: no gradient, and the optimizer leaves it as it is
  AxisSet summed_over = kReplicas;  // the ranks with the same parameter: its gradient is their sum
  Init init = Init::normal;
  Whose whose = Whose::model;
  bool wide = false;  // its values are in the accumulate dtype, whatever the storage of others
  std::vector<int64_t> row_shape = {};  // of a row in the files, where it has more dimensions than here
  int64_t size() const;
  /// Its own unit or that of its copy is one of these.
  bool is_in(const UnitSet& units) const {
    return units.has(unit_number) || (also_in >= 0 && units.has(also_in));
  }
  /// AdamW decays tensors of two or more dimensions only.
  bool decays() const { return shape.size() >= 2; }
};

/// The parts, where those of one tensor are one: it has no heads then.
std::vector<HfPart> tensors_of(const ParamSpec& spec);

/// Rows that a rank has of a parameter: from row `own` of its own, from row `whole` of all.
struct RowSpan {
  int64_t own = 0, whole = 0, rows = 0;
  int first_rank = 0;  // of those that have these rows
  int num_ranks = 1;   // neighbours
  bool copy = false;   // for ParamSpec::also_in: they are those of another stage
};
/// The rows of every part, part by part.
std::vector<RowSpan> row_spans(const ParamSpec& spec, const ShardPlace& of);

/// The first gradient after ParameterStore::clear_grads is written, later ones are added: a gradient is made
/// by one of the two calls below, whatever the memory held.
struct Parameter {
  ParamSpec spec;
  size_t unit = 0;                  // in ParameterStore::units
  int64_t offset = 0;               // first element, of those that the flat buffers number
  Tensor value;                     // storage dtype, or where it is wide accumulate dtype
  Tensor grad;                      // accumulate dtype; empty where nothing is trained
  std::vector<RowSpan> spans = {};  // what value and grad are of the whole parameter
  bool cleared = false;             // nothing was written to grad yet, which counts as zeros
  bool has_grad() const { return !grad.empty(); }
  /// For an op that can do both.
  GradWrite take_write() { return std::exchange(cleared, false) ? GradWrite::first : GradWrite::add; }
  /// For an op that adds.
  Tensor grad_sum(Lane& lane);
  /// For an op that makes it beside other results: scratch, which nobody reads, where nothing is trained.
  Tensor grad_sum_beside(Ctx& c);
};

class ParameterStore {
 public:
  /// `of`: this rank among those that share what is sharded. The returned reference stays valid; views are
  /// set by `allocate`.
  Parameter& add(ParamSpec spec, const ShardPlace& of = {});
  /// Makes the flat buffers, zeroed. Called once, after the last add.
  void allocate(DType storage, bool with_gradients, Device device = Device::cpu,
                const UnitShards& shards = {});

  std::deque<Parameter>& list() { return list_; }
  const std::deque<Parameter>& list() const { return list_; }
  /// Ascending, without gaps.
  const std::vector<Unit>& units() const { return units_; }
  /// Those with a number.
  UnitGroup group(int64_t number) const;
  Tensor flat_values() const;  // all of their memory; none while they are split
  Tensor flat_grads() const;   // of trained units, one after the other; none with shards
  Tensor values_of(const Unit& unit) const;
  /// [size] values from an element of the flat buffers on, in this rank's shard of a unit: those that are
  /// trained.
  Tensor own_values(int64_t first, int64_t size) const;
  bool shards_values() const { return shards_.of_values && shards_.ranks > 1; }
  bool split() const { return split_; }
  /// This rank's shards become what it has of the whole values; nothing is done without shards of values.
  void keep_own(Lane& lane);
  /// What fills values does so in the order of the list, and says so of each: a unit that is never whole
  /// becomes this rank's shard with its last one, and its window is free for the next.
  void filled(const Parameter& p);
  /// From here on a unit's values are in its window, after `join_values` all in their place again: what
  /// others have of them comes from there. On a GPU no other lane has work on them.
  void split_values(Lane& lane);
  void join_values(Lane& lane);
  /// This rank's shard of a unit to its place among the unit's values.
  void place_own(Lane& lane, const Unit& unit) const;
  bool shards_grads() const { return shards_.ranks > 1; }
  /// With shards: while they are made, until those of the unit after the next.
  Tensor grads_of(const Unit& unit) const;
  /// [size] sums from an element of the flat buffers on, in this rank's shard of a unit.
  Tensor grad_sums(int64_t first, int64_t size) const;
  int64_t grad_bytes() const;
  int64_t value_bytes() const { return values_.bytes(); }
  /// Bytes of shards, all the time, and of windows, while values are split.
  int64_t own_value_bytes() const { return shards_values() ? value_shards_.all_kept().bytes() : 0; }
  int64_t value_window_bytes() const { return shards_values() ? value_shards_.window_bytes() : 0; }
  /// Elements of all units, as the flat buffers number them; offsets are padded to 16, padding stays zero.
  int64_t num_elements() const { return num_elements_; }
  int64_t num_parameters() const;  // of all ranks together, without padding
  DType dtype() const { return values_.dtype; }
  Device device() const { return memory_.device(); }
  int64_t held_bytes() const {
    return memory_.held_bytes() + grad_memory_.held_bytes() + shard_memory_.held_bytes() +
           window_memory_.held_bytes();
  }
  /// A GPU has no memory for gradients until `resume_grads`, and after `suspend_grads`. They are lost.
  void resume_grads(Lane& lane);
  void suspend_grads(Lane& lane) { grad_memory_.suspend(lane); }
  /// From here on the values lie in host memory, and on the GPU only from `fetch` to `drop`. For weights that
  /// nothing trains.
  void move_to_host(Lane& lane);
  /// Where they are there already, or were never moved, nothing is done.
  void fetch(Lane& lane);
  void drop(Lane& lane);
  int64_t host_bytes() const { return host_memory_.held_bytes(); }
  /// All gradients count as zeros; their memory is left as it is until they are written.
  void clear_grads();
  /// With shards: the sums are zeros.
  void clear_sums(Lane& lane);
  /// Gradients have memory and count as zeros; values of which there are shards are split.
  void begin_update(Lane& lane);
  /// Zeros where nothing was written since: before the gradients of a unit are read as a whole.
  void fill_grads(Lane& lane, const Unit& unit);

 private:
  void set_views();
  size_t unit_of(const ParamSpec& spec);
  void keep_own(Lane& lane, const Unit& unit);
  void clear_padding(Lane& lane, const Parameter& p);

  std::deque<Parameter> list_;
  std::vector<Unit> units_;
  UnitShards shards_;
  int64_t num_elements_ = 0;
  Arena memory_, grad_memory_, host_memory_, shard_memory_, window_memory_;
  Tensor values_, host_values_;        // the second is empty unless values were moved
  std::vector<int64_t> values_begin_;  // of each unit, in values_
  Tensor grads_;                       // none with shards
  std::vector<int64_t> grads_begin_;   // of each unit, in grads_
  ShardedUnits grad_shards_, value_shards_;
  bool split_ = false;
  bool fetched_ = true;
};

}  // namespace temper

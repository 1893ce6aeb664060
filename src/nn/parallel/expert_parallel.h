#pragma once
// What ranks of ep exchange for a layer of experts, of which each has a neighbouring block. A token goes once
// to each rank that has an expert of its; what each of its experts makes comes back apart, so that its owner
// adds it up as one rank would: the bits do not depend on ep (Lepikhin et al., GShard, 2020, send a copy to
// each expert). Own tokens go in windows, all ranks of ep in the same ones, each with as many tokens as no
// rank gets more rows of than most_window_rows, however they are routed: nothing is dropped. Most often one
// window has all.

#include <span>
#include <vector>

#include "src/comm/collectives.h"
#include "src/core/ctx.h"

namespace temper {

/// Tokens of a layer's input, by rank of ep, and what each chose.
struct ExpertChoices {
  int64_t num_experts = 0, per_token = 0;
  int rank = 0;  // this one
  /// By rank [T, per_token], each token's ascending and different.
  std::vector<std::vector<int32_t>> ids;
  int ranks() const { return static_cast<int>(ids.size()); }
  int64_t num_tokens(int of) const { return std::ssize(ids[static_cast<size_t>(of)]) / per_token; }
};

/// What goes out and comes in at once. Rows are pairs of a token and an expert of its. Lists "by rank" have
/// where each rank's begin, and at the end their number.
struct ExpertWindow {
  std::vector<int32_t> sent;          // own tokens, by the rank that gets them
  std::vector<int64_t> sent_begin;    // by rank
  std::vector<int64_t> got_begin;     // tokens that come, by rank
  std::vector<int32_t> offsets;       // [experts of this rank + 1] of their rows (ops/experts.h)
  std::vector<int32_t> tokens;        // of each row, among those that come; by expert, rank, token
  std::vector<int32_t> back;          // rows in the order in which they go back: by rank, expert, token
  std::vector<int32_t> placed;        // its inverse
  std::vector<int64_t> back_begin;    // by rank
  std::vector<int32_t> choices;       // own rows, as t per_token + j, by expert and token
  std::vector<int64_t> choice_begin;  // by the rank that has their expert; from `first_choice` on
  int64_t first_choice = 0;           // own rows in the windows before
  int64_t num_rows() const { return std::ssize(tokens); }
  int64_t num_tokens() const { return got_begin.back(); }
};

/// The windows of a layer, and where own rows are when all have come back: by window, expert and token.
struct ExpertRoutes {
  std::vector<ExpertWindow> windows;
  std::vector<int32_t> places;  // [T, per_token]
};
/// The most rows of a window, where no rank has more tokens than these.
int64_t most_window_rows(int64_t most_tokens, int64_t per_token, int ranks);
ExpertRoutes route(const ExpertChoices& choices);

/// One layer's exchange, forward or backward: made and used by all ranks of ep together.
class ExpertExchange {
 public:
  /// `ids` [T, K]: of own tokens, of which there may be none. The host waits for the ids of all.
  ExpertExchange(Ctx& c, Collectives& ep, const CTensor& ids, int64_t num_experts);

  std::span<const ExpertWindow> windows() const { return routes_.windows; }
  const std::vector<int32_t>& places() const { return routes_.places; }

  /// Rows of own tokens x [T, D] -> those of the window's tokens [num_tokens, D], in scratch.
  Tensor tokens(Ctx& c, const ExpertWindow& w, const CTensor& x, const char* what) const;
  /// A value of each own choice, of all [T, K] -> of each row [num_rows, 1], in scratch.
  Tensor values(Ctx& c, const ExpertWindow& w, const CTensor& of_choices, const char* what) const;
  /// rows [num_rows, D] -> own ones of `all` [T K, D], in the order of `places`.
  void rows_back(Ctx& c, const ExpertWindow& w, const Tensor& all, const CTensor& rows,
                 const char* what) const;

 private:
  void exchange(Ctx& c, const CTensor& out, const std::vector<int64_t>& out_begin, const Tensor& in,
                const std::vector<int64_t>& in_begin, const char* what) const;

  Collectives& ep_;
  ExpertRoutes routes_;
};

/// Host numbers where ops read them: [n] i32.
CTensor index_tensor(Ctx& c, const std::vector<int32_t>& numbers);

}  // namespace temper

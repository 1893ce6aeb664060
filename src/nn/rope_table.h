#pragma once
// Rotary frequencies of a model and the cosine and sine tables made of them, with the fp32 rounding that
// published models were trained with: every step of the frequency and the angle pos * f are fp32, their
// cosine is exact.
//   p_i = theta^(2i/dh);   default f_i = 1/p_i;   linear f_i / factor;   llama3 blends the two by wavelength;
//   yarn blends 1/p_i and 1/(factor p_i) over a ramp of i;   longrope f_i = 1/(ext_i p_i);   dynamic =
//   default
// The table is a pure function of the model and of the configured context, never of the length of a batch.

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/tensor.h"
#include "src/nn/rope_config.h"

namespace temper {

struct RopeTable {
  std::vector<float> inverse_frequency;  // [dh/2]
  double attention_factor = 1.0;         // multiplies cosine and sine
};

/// Table for positions in [0, max_positions). `dynamic` beyond the model's own max_position_embeddings
/// depends on the batch in its definition and is refused (Exit::data). longrope takes the long factors when
/// max_positions is above original_max_position_embeddings.
RopeTable make_rope_table(const RopeConfig& config, int64_t head_dim, int64_t max_positions);

/// Why a context of more than max_position_embeddings is refused, behind the sentence that refuses it: for
/// `dynamic` with its range, "" for the other types.
std::string why_no_longer_context(const RopeConfig& config);

/// cosine, sine: [positions_count, dh/2], fp32 or fp64; row t is position t.
void fill_cos_sin(const RopeTable& table, int64_t positions_count, Tensor cosine, Tensor sine);

}  // namespace temper

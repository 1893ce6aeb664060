#pragma once
// The self-test of attention over pages.

#include <functional>

#include "kernels/cuda/libraries.h"

namespace temper::cuda {

struct AttentionCall;  // kernels/cuda/attention.h
using DecodeAttention = std::function<void(Ctx&, const AttentionCall&)>;

/// Whether `decode` (none: the decode kernel) gives single rows of random sequences the bits that prefill
/// gives them packed: of a few long sequences and of as many short ones as fill the chip. Exit::environment
/// where prefill itself has other bits over pages. In memory of its own, on the lane, for which it waits.
bool has_bits_of_prefill(Libraries& libraries, const AttentionShape& shape, int64_t page_tokens,
                         const DecodeAttention& decode = {});

/// Whether the decode kernel takes these heads, and has passed.
bool may_use_decode(Ctx& ctx, const AttentionCall& a);

}  // namespace temper::cuda

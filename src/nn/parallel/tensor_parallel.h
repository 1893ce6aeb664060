#pragma once
// What tensor parallel ranks exchange inside a model, and when. A forward only copies, so that its bits are
// those of one rank: every matrix is cut by the rows of its outputs, never by its inputs.
//   column parallel (q,k,v; gate,up)   whole x -> own columns of y;  backward: dx = sum over ranks of dy W
//   row parallel (o; down)             own columns of x -> whole y: x is gathered, and so is y; where ranks
//                                      share tokens x goes to the owners of its tokens, and W is gathered;
//                                      backward, of whole dy: own columns of dx by those of W, which are
//                                      copied for it; dW by the columns of x that are here, which become
//                                      rows when a unit is done. No sums: the bits of one rank.
// (the names are Megatron's, for what goes in and out; there the second one cuts its inputs and sums
// outputs). Sums are in ascending rank order, of parts in the accumulate dtype, rounded once.
// Sequence parallel (Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models,
// 2022): in a batch without pages a rank has its tokens of the residual stream, its norms and their
// gradients. What is "whole" above is then gathered from own tokens (x, dy), made of own tokens (y), and
// summed for own tokens (dx).

#include "src/core/ctx.h"
#include "src/nn/splits.h"

namespace temper {

/// all [T, ranks * n]: `mine` [T, n] of every rank, side by side.
void gather_columns(Ctx& c, Collectives& tp, const Tensor& all, const CTensor& mine);
/// The columns of this rank, of all [T, ranks * n]; in scratch.
Tensor own_columns(Ctx& c, const Collectives& tp, const CTensor& all);
/// all [T, n]: `mine` of every rank, its token_share of T.
void gather_tokens(Ctx& c, Collectives& tp, const Tensor& all, const CTensor& mine);
/// y [own rows, ranks * n]: the columns of every rank, of which `mine` [N, n] has this one's; a rank's own
/// rows are its token_share of N. And back. Not in the same memory.
void columns_to_rows(Ctx& c, Collectives& tp, const Tensor& y, const CTensor& mine, const char* what);
void rows_to_columns(Ctx& c, Collectives& tp, const Tensor& mine, const CTensor& y, const char* what);
/// sum [own tokens, n] = over ranks of these rows of `parts` [T, n], in the accumulate dtype of sum.
void sum_own_tokens(Ctx& c, Collectives& tp, const Tensor& sum, const CTensor& parts, const char* what);
/// sum = over ranks of `parts`, of one shape, in the accumulate dtype of sum.
void sum_parts(Ctx& c, Collectives& tp, const Tensor& sum, const CTensor& parts);
/// rows [T, D], of which every element is -0 on all ranks but its owner's, become those of the owners.
void copy_owned(Ctx& c, Collectives& tp, const Tensor& rows);
/// own [own tokens, D]: these rows of such `rows`.
void copy_own_tokens(Ctx& c, Collectives& tp, const Tensor& own, const CTensor& rows);
/// stats [chunks, n, 3]: the chunks of every rank's share of the vocabulary are copied to all ranks; logits
/// [n]: those of the owners.
void gather_stats(Ctx& c, Collectives& tp, const Tensor& stats, const Tensor& logits, int64_t vocabulary);
/// The chunks of every rank's share of the vocabulary are copied to all ranks.
void gather_samples(Ctx& c, Collectives& tp, const SampleChunks& chunks, int64_t vocabulary);

/// A gradient that was made by columns becomes that of this rank's rows.
void place_gradient(Ctx& c, Collectives& tp, const Parameter& p);
/// After the backward of a unit: gradients are those of this rank's rows, and of what several ranks have they
/// are sums over them, where each has made its own part alone (norms: of its tokens or heads; keys and values
/// of a head that several ranks have).
void settle_gradients(Ctx& c, Collectives& tp, ParameterStore& parameters, const Unit& unit);

}  // namespace temper

// The only contract between ops and backends: one line per entry point, expanded by includers through KERNEL,
// or through SCRATCH_KERNEL where it can take much scratch memory on a GPU. Outputs first, then inputs, then
// scalars. Parameter gradients accumulate unless a GradWrite says otherwise, activation gradients overwrite.
// Formulas and shapes: the function of the same name in src/ops.

// linear
KERNEL(linear_forward, Tensor y, CTensor x, CTensor w, CTensor bias)
SCRATCH_KERNEL(linear_swiglu_forward, Tensor a, CTensor x, CTensor w, CTensor bias)
KERNEL(linear_backward_input, Tensor dx, CTensor dy, CTensor w)
KERNEL(linear_backward_weight, Tensor dw, CTensor dy, CTensor x, GradWrite write)
SCRATCH_KERNEL(linear_backward_bias, Tensor db, CTensor dy)
// adapters
KERNEL(linear_pair_forward, Tensor y, Tensor u, CTensor x, CTensor w, CTensor bias, CTensor a)
KERNEL(adapter_forward, Tensor y, LowProduct low)
KERNEL(adapter_swiglu_forward, Tensor a, CTensor gate_up, LowProduct low)
KERNEL(adapter_swiglu_forward_kept, Tensor a, Tensor gate_up, LowProduct low)
KERNEL(adapter_backward_low, Tensor du, CTensor dy, CTensor v, double scale)
KERNEL(adapter_backward_input, Tensor dx, CTensor du, CTensor a)
KERNEL(adapter_swiglu_backward, Tensor dgate_up, Tensor da, CTensor du, CTensor a, CTensor gate_up)
KERNEL(adapter_weights, Tensor w, CTensor b, AdapterBlocks blocks)
SCRATCH_KERNEL(adapter_backward_a, Tensor da, CTensor du, CTensor x, GradWrite write)
SCRATCH_KERNEL(adapter_backward_b, Tensor db, CTensor dy, CTensor u, double scale, AdapterBlocks blocks,
               GradWrite write)
// elementwise and rows
KERNEL(embedding_forward, Tensor y, CTensor tokens, CTensor w, VocabularyShare share)
KERNEL(embedding_backward, Tensor dw, CTensor dy, CTensor tokens, int64_t skip_id, VocabularyShare share)
KERNEL(gather_rows, Tensor y, CTensor x, CTensor index)
KERNEL(scatter_rows, Tensor y, CTensor x, CTensor index)
KERNEL(copy_columns, Tensor to, int64_t to_column, CTensor from, int64_t from_column, int64_t columns)
KERNEL(join_columns, Tensor y, CTensor parts, CTensor own, int64_t own_part)
KERNEL(add, Tensor y, CTensor a, CTensor b)
KERNEL(sum_in_order, Tensor y, CTensor parts, CTensor own, int64_t own_part, GradWrite write)
KERNEL(widen, Tensor y, CTensor x)
KERNEL(add_digest, Tensor sum, CTensor x, int64_t first)
KERNEL(rmsnorm_forward, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps)
KERNEL(add_rmsnorm_forward, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w, double eps)
SCRATCH_KERNEL(rmsnorm_backward, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
               CTensor rstd)
KERNEL(head_norm_forward, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk, AttentionShape shape,
       double eps)
KERNEL(head_norm_rope_forward, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
       AttentionShape shape, double eps)
KERNEL(head_norm_rope_append, Tensor y, Tensor rstd, PagedKv kv, int64_t layer, CTensor x, CTensor wq,
       CTensor wk, RopeInput rope, CTensor cu_seqlens, AttentionShape shape, double eps)
KERNEL(head_norm_rope_backward, Tensor dx, Tensor dwq, Tensor dwk, CTensor dy, CTensor x, CTensor wq,
       CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape)
KERNEL(rope_forward, Tensor qkv, CTensor positions, CTensor cosine, CTensor sine, AttentionShape shape)
KERNEL(rope_backward, Tensor dqkv, CTensor positions, CTensor cosine, CTensor sine, AttentionShape shape)
KERNEL(swiglu_forward, Tensor a, CTensor gate_up)
KERNEL(swiglu_backward, Tensor dgate_up, CTensor da, CTensor gate_up)
// experts
KERNEL(choose_experts, Tensor ids, Tensor weights, CTensor logits, int64_t num_experts, bool normalize)
KERNEL(choose_experts_backward, Tensor dlogits, CTensor dweights, CTensor ids, CTensor weights,
       CTensor logits, int64_t num_experts, bool normalize)
SCRATCH_KERNEL(sort_by_expert, Tensor offsets, Tensor tokens, Tensor places, CTensor ids)
KERNEL(add_router_sums, Tensor sums, CTensor logits, CTensor offsets)
KERNEL(add_router_counts, Tensor counts, CTensor ids, CTensor begins)
KERNEL(count_other_routes, Tensor count, CTensor ids, CTensor given)
KERNEL(follow_routes, Tensor ids, Tensor weights, CTensor given, CTensor logits, int64_t num_experts,
       bool normalize)
KERNEL(router_losses_backward, Tensor dlogits, Tensor losses, CTensor logits, CTensor slopes, CTensor begins,
       double z)
KERNEL(expert_linear_forward, Tensor y, CTensor x, CTensor w, CTensor offsets)
KERNEL(expert_linear_backward_input, Tensor dx, CTensor dy, CTensor w, CTensor offsets)
KERNEL(expert_linear_backward_weight, Tensor dw, CTensor dy, CTensor x, CTensor offsets, GradWrite write)
KERNEL(combine_experts, Tensor y, CTensor x, CTensor places, CTensor weights, CTensor shared, CTensor logits)
KERNEL(weigh_expert_rows_backward, Tensor da, Tensor wa, Tensor dweights, CTensor dweighted, CTensor a,
       CTensor places, CTensor weights)
KERNEL(shared_expert_backward, Tensor dshared, Tensor dlogits, CTensor dy, CTensor shared, CTensor logits)
KERNEL(sum_expert_rows, Tensor dx, CTensor rows, CTensor places, CTensor router, CTensor shared)
// attention
KERNEL(attention_varlen_forward, Tensor out, Tensor lse, CTensor qkv, CTensor cu_seqlens,
       AttentionShape shape, double scale)
SCRATCH_KERNEL(attention_varlen_backward, Tensor dqkv, CTensor dout, CTensor qkv, CTensor out, CTensor lse,
               CTensor cu_seqlens, AttentionShape shape, double scale)
KERNEL(append_kv, PagedKv kv, int64_t layer, CTensor qkv, CTensor cu_seqlens, AttentionShape shape)
SCRATCH_KERNEL(attention_paged, Tensor out, CTensor qkv, PagedKv kv, int64_t layer, CTensor cu_seqlens,
               AttentionShape shape, double scale)
// head
SCRATCH_KERNEL(logprob_forward, Tensor logprob, Tensor entropy, Tensor lse, CTensor hidden, CTensor w,
               CTensor targets, double temperature)
SCRATCH_KERNEL(logprob_stats, Tensor stats, Tensor target_logit, CTensor hidden, CTensor w, CTensor targets,
               double temperature, VocabularyShare share)
KERNEL(logprob_merge, Tensor logprob, Tensor entropy, Tensor lse, CTensor stats, CTensor target_logit)
SCRATCH_KERNEL(logprob_backward, Tensor dhidden, Tensor dw, CTensor dlogprob, CTensor dentropy,
               CTensor hidden, CTensor w, CTensor targets, CTensor lse, CTensor entropy, double temperature,
               VocabularyShare share)
SCRATCH_KERNEL(sample_chunks, SampleChunks chunks, CTensor hidden, CTensor w, SampleRows rows,
               int64_t num_sampleable, VocabularyShare share)
KERNEL(sample_merge, Tensor tokens, Tensor logprob, SampleChunks chunks, SampleRows rows,
       int64_t num_sampleable)
// optimizer
KERNEL(adamw_step, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad,
       std::span<const FlatRange> decays, AdamwStep step)
KERNEL(round_master, Tensor weight, CTensor master)
KERNEL(sum_of_squares, Tensor sum, CTensor x)

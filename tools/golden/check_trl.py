#!/usr/bin/env python3
"""Holds tests/golden/rl/methods.json beside trl's own loss, GRPOTrainer._compute_loss: each case that trl can
express (ppo with every aggregation, clip and dual clip, gspo, cispo, weights of older samples, KL, entropy), value
and gradient within 1e-10. What trl lacks is counted: reinforce, clamped ratios, cispo with a lower bound or another
aggregation, entropy in another one than token-mean; and gspo with advantages or weights by token, which trl sums
before it differentiates. Needs torch and trl; run from the repository root."""

import collections
import json
import sys
import types

import torch
from golden_methods import BASE, LMAX, OUT, importance, parts
from trl.trainer.grpo_trainer import GRPOTrainer

LOSS_TYPES = {"token-mean": "bnpo", "seq-mean-token-mean": "grpo", "seq-mean-token-sum": "luspo",
              "seq-mean-token-sum-norm": "dr_grpo", "token-sum": "dapo"}
LIMIT = 1e-10


def can_express(batch, config):
    clamp = config["ratio_clamp"]
    ratios = [abs(a - b) for a, b in zip(batch["logprob"], batch["old_logprob"])]
    if clamp > 0 and max(ratios) > clamp:
        return False
    if config["entropy_coef"] and config["aggregation"] != "token-mean":
        return False
    weights = importance(batch, config).tolist()
    by_token = any(len(set(values[p])) > 1 for values in (batch["advantage"], weights) for p in parts(batch))
    return {"ppo": True, "gspo": not by_token, "reinforce": False,
            "cispo": config["clip_low"] == 1.0 and config["aggregation"] == "token-mean"}[config["loss"]]


def padded(rows):
    width = max(len(r) for r in rows)
    return torch.stack([torch.nn.functional.pad(r, (0, width - len(r))) for r in rows])


def trl_loss(batch, config, lp):
    """The loss of the responses with a counted token: trl divides by all that it is given."""
    mask = torch.tensor(batch["mask"])
    kept = [p for p in parts(batch) if mask[p].sum() > 0]

    def rows_of(values):
        return padded([torch.as_tensor(values)[p] for p in kept])
    entropy = rows_of(batch["entropy"])
    counted = rows_of(mask)
    one = types.SimpleNamespace
    trainer = one(
        model=one(training=False),
        _get_per_token_logps_and_entropies=lambda *_, **__: (rows_of(lp), entropy, None),
        args=one(delta=config["dual_clip"] or None, use_bias_correction_kl=False, steps_per_generation=1),
        accelerator=one(num_processes=1, gather=lambda x: x, gather_for_metrics=lambda x: x,
                        reduce=lambda x, reduction: x, sync_gradients=True),
        loss_type="cispo" if config["loss"] == "cispo" else LOSS_TYPES[config["aggregation"]],
        importance_sampling_level="sequence" if config["loss"] == "gspo" else "token",
        epsilon_low=config["clip_low"], max_completion_length=LMAX, beta=config["kl_coef"],
        epsilon_high=config["clip_high"] + (config["loss"] == "cispo"), top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, aux_loss_enabled=False, use_vllm=True,
        vllm_importance_sampling_correction=True, _entropy_bonus_enabled=config["entropy_coef"] != 0,
        use_adaptive_entropy=False, entropy_coef=config["entropy_coef"], current_gradient_accumulation_steps=1,
        _metrics={"eval": collections.defaultdict(list)})
    ids = torch.zeros_like(counted)
    items = counted.sum() if config["aggregation"] == "token-mean" else torch.tensor(1.0)
    return GRPOTrainer._compute_loss(trainer, one(training=False), {
        "prompt_ids": ids[:, :0], "prompt_mask": ids[:, :0], "completion_ids": ids, "completion_mask": counted,
        "advantages": rows_of(batch["advantage"]) if config["loss"] != "gspo" else
        torch.tensor([batch["advantage"][p][0] for p in kept]),
        "old_per_token_logps": rows_of(batch["old_logprob"]), "ref_per_token_logps": rows_of(batch["ref_logprob"]),
        "importance_sampling_ratio": rows_of(importance(batch, config)), "num_items_in_batch": items})


def main():
    golden = json.load(open(OUT))
    worst, compared, left = 0.0, collections.Counter(), collections.Counter()
    for name, cases in golden["losses"].items():
        for case in cases:
            config, batch = BASE | {"loss": name} | case["config"], golden["batches"][case["batch"]]
            if not can_express(batch, config):
                left[name] += 1
                continue
            lp = torch.tensor(batch["logprob"], requires_grad=True)
            loss = trl_loss(batch, config, lp)
            loss.backward()
            apart = max([abs(loss.item() - case["actor/loss"])] +
                        [abs(a - b) for a, b in zip(lp.grad.tolist(), case["dlogprob"])])
            if not apart <= LIMIT:
                print(f"{name} {case['config']} of batch {case['batch']}: {apart:.3g} apart")
            worst = max(worst, apart)
            compared[name] += 1
    print(f"beside trl: {dict(compared)} cases, at most {worst:.2g} apart; it has no words for {dict(left)}")
    sys.exit(0 if worst <= LIMIT and all(compared[n] for n in ("ppo", "gspo", "cispo")) else 1)


if __name__ == "__main__":
    main()

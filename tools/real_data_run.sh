#!/usr/bin/env bash
# Runs on real input, which is not in the repository: GRPO on GSM8K with the Qwen3 tokenizer, its chat template and its
# whole vocabulary, and the published model TinyZero in and out again. Everything a run wrote is computed a second time.
# usage: tools/real_data_run.sh DATA_DIR
#   DATA_DIR/gsm8k/train.jsonl            openai/grade-school-math
#   DATA_DIR/tokenizers/qwen3/            tokenizer.json (or .gz) and tokenizer_config.json of Qwen3
#   DATA_DIR/models/tinyzero/             config.json, generation_config.json, model.safetensors of Jiayi-Pan/TinyZero
# TEMPER=build/temper OUT=runs/real-data PYTHON=python3 (one with transformers compares TinyZero's log-probs with it)
set -eu
[ $# = 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 64; }
cd "$(dirname "$0")/.."
data=$1 temper=${TEMPER:-build/temper} out=${OUT:-runs/real-data} python=${PYTHON:-python3}
mpi=(mpirun -n 2 --bind-to none)
[ "$(nproc)" -ge 2 ] || mpi+=(--oversubscribe)
[ "$(id -u)" != 0 ] || mpi+=(--allow-run-as-root)
show() { echo "\$ $*"; "$@"; }
train() { show "${mpi[@]}" "$temper" train "$@"; }
check() { show "$python" tools/golden/check_advantages.py "$1"; }
rm -rf "$out"
mkdir -p "$out/qwen3"

echo "== a random Qwen3 of 2 layers and 151,936 ids"
cp "$data/tokenizers/qwen3/tokenizer_config.json" "$out/qwen3/"
if [ -e "$data/tokenizers/qwen3/tokenizer.json" ]; then
  cp "$data/tokenizers/qwen3/tokenizer.json" "$out/qwen3/"
else
  gzip -dc "$data/tokenizers/qwen3/tokenizer.json.gz" > "$out/qwen3/tokenizer.json"
fi
cat > "$out/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 192,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 151936,
 "max_position_embeddings": 2048, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
 "initializer_range": 0.02, "eos_token_id": 151645}
JSON
show "$temper" init --config "$out/config.json" --tokenizer "$out/qwen3" --out "$out/model" --seed 1

echo "== GRPO, 3 steps from random weights: responses differ in length alone, and are paid for it"
cat > "$out/grpo.toml" <<TOML
[run]
name = "random"
dir = "$out"
steps = 3
threads = 1
[model]
path = "$out/model"
[algorithm]
kl_coef = 0.05
entropy_coef = 0.001
[rollout]
prompts_per_step = 8
samples_per_prompt = 4
max_prompt_tokens = 512
max_new_tokens = 64
stop = ["th"]
[train]
updates_per_step = 2
[optimizer]
lr = 1e-3
[data]
train = "$data/gsm8k/train.jsonl"
prompt_key = "question"
[reward]
functions = [{name = "gsm8k", method = "flexible", format_score = 0.1},
             {name = "length", max_tokens = 64, buffer_tokens = 48, weight = 0.3}]
TOML
train "$out/grpo.toml"
check "$out/random"

echo "== the same after 25 supervised steps on '#### answer': right, wrong and missing answers"
sed -E 's/"answer": ".*#### /"response": "#### /' "$data/gsm8k/train.jsonl" > "$out/answers.jsonl"
cat > "$out/sft.toml" <<TOML
[run]
name = "sft"
dir = "$out"
steps = 25
threads = 1
[model]
path = "$out/model"
[algorithm]
name = "sft"
[rollout]
max_prompt_tokens = 512
max_new_tokens = 16
[train]
samples_per_update = 32
[optimizer]
lr = 1e-2
weight_decay = 0.0
[data]
train = "$out/answers.jsonl"
prompt_key = "question"
[checkpoint]
export_hf_every = 25
TOML
train "$out/sft.toml"
train "$out/grpo.toml" run.name=warm model.path="$out/sft/export/step-000025" rollout.max_new_tokens=16 \
  rollout.prompts_per_step=32 'rollout.stop=[]' \
  'reward.functions=[{name="gsm8k",format_score=0.1},"exact","math",{name="length",max_tokens=16,buffer_tokens=12,weight=0.3}]'
check "$out/warm"
"$python" - "$out/warm" <<'PY'
import collections, glob, json, sys
rows = [json.loads(line) for path in glob.glob(sys.argv[1] + "/rollouts/*") for line in open(path, encoding="utf-8")]
count = collections.Counter(row["reward_parts"]["gsm8k"] for row in rows)
print(f"scores of {len(rows)} responses: {dict(count)}; {sum(r['advantage'] != 0 for r in rows)} advantages are not 0")
sys.exit(len(count) < 3)
PY
echo "== a dump with one digit changed must not pass"
cp -r "$out/warm" "$out/altered"
sed -i '0,/"advantage":-\{0,1\}[0-9.]*[1-8],/s/\("advantage":-\{0,1\}[0-9.]*\)[1-8],/\19,/' \
  "$out/altered/rollouts/step-000002.jsonl"
if check "$out/altered"; then exit 1; fi

echo "== TinyZero: scored, through a GRPO step with a learning rate of 0, exported, the same bytes"
mkdir "$out/digits"
cp tests/golden/tinyzero/tokenizer* "$out/digits/"
for i in 1 2 3 4 5 6 7; do
  echo "{\"prompt\":\"$i+$i=\",\"answer\":\"$((2 * i))\"}"
done > "$out/sums.jsonl"
train "$out/grpo.toml" run.name=tinyzero run.steps=1 model.path="$data/models/tinyzero" tokenizer.path="$out/digits" \
  optimizer.lr=0 data.train="$out/sums.jsonl" data.prompt_key=prompt data.chat=false 'rollout.stop=["="]' \
  rollout.max_prompt_tokens=16 'reward.functions=["arithmetic",{name="length",max_tokens=64,buffer_tokens=48}]'
check "$out/tinyzero"
show "$temper" export --checkpoint "$out/tinyzero" --out "$out/tinyzero-out"
for file in model.safetensors generation_config.json; do
  show cmp "$data/models/tinyzero/$file" "$out/tinyzero-out/$file"
done
"$python" - "$data/models/tinyzero" "$out" <<'PY'
import json, random, sys
source, out = sys.argv[1:]
def header(folder):
    with open(folder + "/model.safetensors", "rb") as f:
        return json.loads(f.read(int.from_bytes(f.read(8), "little")))
before, after = json.load(open(source + "/config.json")), json.load(open(out + "/tinyzero-out/config.json"))
changed = [key for key in before if before[key] != after.get(key, "missing")]
print(f"{len(header(source).keys() - {'__metadata__'})} tensors byte for byte; config.json: {len(before)} keys kept, "
      f"{len(changed)} changed, {len(after) - len(before)} more")
random.seed(1)
with open(out + "/tokens.jsonl", "w") as f:
    for n in (2, 3, 17, 64, 200, 511, 1024, 2048):
        f.write(json.dumps({"tokens": [random.randrange(16) for _ in range(n)]}) + "\n")
sys.exit(bool(changed))
PY
"$temper" score --model "$data/models/tinyzero" --input "$out/tokens.jsonl" > "$out/scores.jsonl"
"$temper" score --model "$out/tinyzero-out" --input "$out/tokens.jsonl" | show cmp - "$out/scores.jsonl"
if "$python" -c 'import transformers' 2> /dev/null; then
  "$python" - "$data/models/tinyzero" "$out" 2> /dev/null <<'PY'
import json, sys
import torch
from transformers import AutoModelForCausalLM
source, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(source, torch_dtype=torch.float32)
worst, count = 0.0, 0
for tokens, scores in zip(open(out + "/tokens.jsonl"), open(out + "/scores.jsonl")):
    tokens = torch.tensor([json.loads(tokens)["tokens"]])
    with torch.no_grad():
        expected = torch.log_softmax(model(tokens).logits[0].double(), -1)[:-1].gather(1, tokens[0, 1:, None])[:, 0]
    found = torch.tensor(json.loads(scores)["logprobs"], dtype=torch.float64)
    worst, count = max(worst, (found - expected).abs().max().item()), count + len(found)
print(f"{count} log-probs of TinyZero against transformers: largest difference {worst:.1e}")
sys.exit(worst > 2e-5)
PY
else
  echo "$python has no transformers: TinyZero's log-probs are not compared with it"
fi
echo "real data: everything is equal"

#!/usr/bin/env bash
# A newcomer's first hour, after README.md: its first config on a model and data that are made here, `check`, fine-tuning
# with held-out loss, GRPO with the README's reward in Python, Ctrl-C, the same command again, page, conversation, export.
# Each line that is printed is looked at: one that is not expected fails the hour, as does one that does not come.
# usage: tools/package/newcomers_hour.sh [FOLDER]; FOLDER (this one) has build/temper, README.md and tools/. Two cores and
# some 40 s, python3, `script` (a terminal). HOUR=DIR keeps what was made.
set -euo pipefail
export LC_ALL=C CUDA_VISIBLE_DEVICES=
tree=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "${1:-$tree}" && pwd)
here=${HOUR:-$(mktemp -d)}
[ -n "${HOUR:-}" ] || trap 'rm -rf "$here"' EXIT
wrong() { echo "newcomer's hour: $*" >&2; exit 1; }
for program in python3 script mpirun; do command -v "$program" > /dev/null || wrong "$program is missing"; done
[ -x "$folder/build/temper" ] || wrong "no $folder/build/temper"
mkdir -p "$here"
cd "$here"
[ -z "$(ls -A)" ] || wrong "$here is not empty"
mkdir build tools
ln -s "$folder/build/temper" build/temper
ln -s "$folder/tools/gsm8k_data.py" tools/gsm8k_data.py

# look FILE: each line of it against the patterns (extended regular expressions of whole lines) in $patterns. All of them
# are wanted, but those after "? ".
look() {
  wanted=$patterns awk '
    BEGIN {
      n = split(ENVIRON["wanted"], pattern, "\n")
      for (i = 1; i <= n; ++i) optional[i] = sub(/^[?] /, "", pattern[i])
    }
    /^(out|err|tty): *$/ { next }
    {
      for (i = 1; i <= n; ++i) if ($0 ~ "^" pattern[i] "$") { seen[i] = 1; next }
      print "not expected: " $0; bad = 1
    }
    END {
      for (i = 1; i <= n; ++i) if (!seen[i] && !optional[i]) { print "did not come: " pattern[i]; bad = 1 }
      exit bad
    }' "$1" >&2
}
# step TITLE CODE COMMAND...: must end with CODE; stdin has the patterns of its lines, "out: " before those of stdout and
# "err: " before those of stderr, "tty: " where it is on a terminal.
step() {
  local title=$1 wanted=$2 code=0 began=$SECONDS patterns
  shift 2
  patterns=$(cat)
  rm -f out err tty
  "$@" > out 2> err < /dev/null || code=$?
  if [ -e tty ]; then  # what is shown in the end: no progress that was wiped, no control sequences, nothing of `script`
    sed -E 's/\r+$//; s/^.*\r\x1b\[K//; s/\x1b\[K//g; s/^\^C//; s/^/tty: /; /^tty: Script (started|done) on /d' tty > lines
  else
    { sed 's/^/out: /' out; sed 's/^/err: /' err; } > lines
  fi
  look lines || { sed 's/^/  | /' lines >&2; wrong "$title: such are not the lines that it should print (above)"; }
  [ "$code" = "$wanted" ] || { sed 's/^/  | /' lines >&2; wrong "$title: it ended with $code, not with $wanted"; }
  printf 'ok %4d s  %s\n' $((SECONDS - began)) "$title"
}
# typed COMMAND: on a terminal; what functions `keys` prints is typed there.
typed() { keys | script -qefc "$1" tty > /dev/null; }
# until TEST...: waits for it, a minute at most.
until_true() { for _ in {1..600}; do ! "$@" || return 0; sleep 0.1; done; }
steps_done() { [ -f "runs/$1/metrics.jsonl" ] && [ "$(wc -l < "runs/$1/metrics.jsonl")" -ge "$2" ]; }
shown() { grep -q -- "$1" tty 2> /dev/null; }
values() { sed -n 's|.*"'"$2"'":\([-0-9.e+]*\)[,}].*|\1|p' "runs/$1/metrics.jsonl"; }
has() { [ -e "$1" ] || wrong "there is no $1"; }

# The README's config and reward, as a person copies them.
awk '/^`my.toml`/ { on = 1 } on && /^    / { seen = 1; print substr($0, 5); next } seen && NF { exit }' \
  "$folder/README.md" > my.toml
awk '/^## A reward in Python/ { on = 1 } on && /^    import/ { code = 1 } code && !/^    / { exit } code { print substr($0, 5) }' \
  "$folder/README.md" > my_reward.py
grep -q '^path = "models/Qwen3-0.6B"$' my.toml && grep -q print my_reward.py || wrong "README.md has another config or reward"

number='[-0-9.e+]+'
step "check, before anything is there" 64 build/temper check my.toml <<'LINES'
out: would not start: 2 errors
err: temper: model.path is refused
err: temper: data.train is refused
err:   where: my.toml:[0-9]+
err:   why:   models/Qwen3-0.6B does not exist .*`hf download Qwen/Qwen3-0.6B --local-dir models/Qwen3-0.6B`.*
err:   why:   data/gsm8k/train.jsonl does not exist .*`python3 tools/gsm8k_data.py downloads/gsm8k` make .*
LINES

# A model and a data set as they are downloaded, but small.
cat > tiny.json <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 6400,
 "max_position_embeddings": 1024, "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "initializer_range": 0.02, "eos_token_id": 2}
JSON
step "a model of random weights" 0 build/temper init --config tiny.json --seed 1 --out models/Qwen3-0.6B \
  --tokenizer "$tree/tests/golden/tokenizer/minimind" < /dev/null
mkdir -p downloads/gsm8k
awk 'BEGIN {
  split("Tom Ann Joe Sue Max Eva Ben Liz", name, " "); split("pens cups hats eggs", thing, " ")
  for (i = 0; i < 320; ++i) {
    a = 1 + i % 5; b = 1 + int(i / 5) % 4
    printf "{\"question\": \"%s has %d %s and buys %d. How many now?\", \"answer\": \"%d + %d = <<%d+%d=%d>>%d\\n#### %d\"}\n", \
      name[1 + i % 8], a, thing[1 + int(i / 8) % 4], b, a, b, a, b, a + b, a + b, a + b \
      > (i % 5 == 4 && i % 3 ? "downloads/gsm8k/test.jsonl" : "downloads/gsm8k/train.jsonl")
  }
}'
step "data" 0 python3 tools/gsm8k_data.py downloads/gsm8k <<'LINES'
out: data/gsm8k/train.jsonl: [0-9]+ lines
out: data/gsm8k/test.jsonl: [0-9]+ lines
LINES

screen='out:   tokens   at most [0-9,]+ a step: .*
out:   ranks    2 ranks: .*
out:   memory   .* MiB
out:   model    models/Qwen3-0.6B: qwen3, [0-9,]+ parameters, 2 layers, 6,400 ids, fp32
out:   data     data/gsm8k/train.jsonl: [0-9]+ lines, prompts of [0-9]+ tokens .*
out: first prompt \(data/gsm8k/train.jsonl:1\), [0-9]+ tokens; .*
out:   [|] <[|]im_start[|]>user
out:   [|] Tom has 1 pens and buys 1. How many now[?]<[|]im_end[|]>
out:   [|] <[|]im_start[|]>assistant
out:   [|] <think>
out:   [|] </think>
out: more: --memory .*'
fits='out: ok: the fullest rank takes [0-9.]+ MiB of host memory in its largest phase, train; this machine has .* for each rank'
step "check" 0 build/temper check my.toml --ranks 2 <<LINES
$fits
out:   run      grpo, 100 steps, each 16 prompts x 8 samples and 1 update; [0-9.]+ epochs in all
out:   rewards  gsm8k; all [0-9]+ answers can be matched
$screen
LINES
[ "$(wc -l < out)" -le 25 ] || wrong "check is longer than a screen"

sft='my.toml run.name=warm run.steps=60 algorithm.name=sft train.samples_per_update=32 optimizer.lr=1e-2
  data.response_key=answer validation.data=data/gsm8k/test.jsonl validation.every=20
  rollout.max_new_tokens=24'
begin='? err: loaded [0-9.]+ GB of weights in [0-9.]+ s, [0-9.]+ GB/s'
# shellcheck disable=SC2086
step "supervised fine-tuning with held-out loss" 0 build/temper train $sft --local 2 <<LINES
$begin
err: sft of models/Qwen3-0.6B \([0-9,]+ parameters\) on data/gsm8k/train.jsonl \([0-9]+ lines\): steps 1 to 60 of 32 lines; 2 ranks, .*, cpu, fp32; Ctrl-C saves and stops
err:   60 updates in all; sft: .*
err: step [0-9]+/60  loss [0-9.]+  grad_norm [0-9.]+  s [0-9.]+  $number[k]? tok/s  [0-9]+s left
err: step [0-9]+/60  loss [0-9.]+  grad_norm [0-9.]+  val/test/.*  s [0-9.]+  $number[k]? tok/s  [0-9]+s left
err: saved runs/warm/checkpoints/step-000060
err: page runs/warm/report.html
LINES
values warm val/test/loss | awk '{ loss[NR] = $1 } END { exit !(NR == 3 && loss[3] < loss[1] && loss[3] < 2) }' ||
  wrong "held-out losses: $(values warm val/test/loss | tr '\n' ' ')"
# shellcheck disable=SC2086
step "eval of its checkpoint" 0 build/temper eval $sft --checkpoint runs/warm --local 2 <<LINES
out: [{]"val/test/loss":$(values warm val/test/loss | tail -1),"val/test/ppl":$number,.*"val/test/score/mean":$(values warm val/test/score/mean | tail -1),.*[}]
LINES
step "export of it" 0 build/temper export --checkpoint runs/warm --out models/warm < /dev/null

grpo="build/temper train my.toml model.path=models/warm run.steps=40 rollout.max_new_tokens=24 optimizer.lr=1e-3
  'reward.functions=[{name = \"command\", argv = [\"python3\", \"my_reward.py\"]}]' --local 2"
grpo=${grpo//$'\n'/}
lines_of() {  # lines_of STREAM FIRST: of a part of the run that begins with step FIRST
  cat <<LINES
? $1: loaded [0-9.]+ GB of weights in [0-9.]+ s, [0-9.]+ GB/s
$1: grpo of models/warm \([0-9,]+ parameters\) on data/gsm8k/train.jsonl \([0-9]+ lines\): steps $2 to 40 of 16 prompts x 8 samples; 2 ranks, .*, cpu, fp32; Ctrl-C saves and stops
$1:   40 updates in all; grpo: .*
$1: sample of step [0-9]+: "[A-Z][a-z]+ has [1-5] [a-z]+ and buys [1-4]. How many now[?]" -> ".*", answer ".*", reward [01]
$1: step [0-9]+/40  score [0-9.]+  loss -?[0-9.]+  .* tok/s  [0-9]+s left
$1: page runs/first/report.html
LINES
}
keys() { until_true steps_done first 3; printf '\003'; sleep 1; }
step "GRPO with a reward in Python, and Ctrl-C" 75 typed "$grpo" <<LINES
$(lines_of tty 1)
tty: saved runs/first/checkpoints/step-[0-9]+
tty: SIGINT: saved step [0-9]+; run the same command again
LINES
saved=$(sed -n 's/.*SIGINT: saved step \([0-9]*\);.*/\1/p' lines)
has "runs/first/checkpoints/$(printf 'step-%06d' "$saved")/manifest.json"
step "the same command again" 0 bash -c "$grpo" <<LINES
$(lines_of err $((saved + 1)))
err: resumed from runs/first/checkpoints/step-[0-9]+, step $saved
err: saved runs/first/checkpoints/step-000040
LINES
[ "$(values first step | tr '\n' ' ')" = "$(seq -s ' ' 40) " ] || wrong "steps of the run: $(values first step | tr '\n' ' ')"
values first critic/score/mean | awk '{ score[NR > 20] += $1 } END { exit !(score[0] > 0 && score[1] > score[0]) }' ||
  wrong "it has learned nothing: $(values first critic/score/mean | tr '\n' ' ')"

step "the page" 0 build/temper report runs/warm runs/first <<'LINES'
out: runs/warm/report.html
LINES
for page in runs/warm/report.html runs/first/report.html; do
  for words in '</html>' '<svg' 'first'; do grep -q "$words" "$page" || wrong "$page has no $words"; done
done
keys() { until_true shown '> '; printf 'Tom has 2 pens and buys 3. How many now?\n'; sleep 1; until_true shown '#### '; printf '\004'; sleep 1; }
step "a conversation with it" 0 typed "build/temper generate --checkpoint runs/first --chat rollout.temperature=0" <<'LINES'
tty: a line is a message; Ctrl-C stops an answer, Ctrl-D ends
tty: > Tom has 2 pens and buys 3. How many now[?]
tty: [0-9]+ \+ [0-9]+ = .*
tty: #### .*
tty: > 
LINES
step "export" 0 build/temper export --checkpoint runs/first --out models/tuned < /dev/null
for file in config.json model.safetensors tokenizer.json; do has "models/tuned/$file"; done
ask='--prompts data/gsm8k/test.jsonl --prompt-key question rollout.max_new_tokens=8'
# shellcheck disable=SC2086
{
  step "generate from the checkpoint" 0 build/temper generate --checkpoint runs/first $ask --out by_checkpoint.jsonl --local 2 <<'LINES'
err: [0-9]+/[0-9]+ prompts
LINES
  step "generate from the export" 0 build/temper generate --model models/tuned $ask --out by_export.jsonl <<'LINES'
err: [0-9]+/[0-9]+ prompts
LINES
}
cmp by_checkpoint.jsonl by_export.jsonl || wrong "the export is another model than the checkpoint"
step "verify" 0 build/temper verify --checkpoint runs/first <<'LINES'
out: runs/first/checkpoints/step-000040: every checksum matches
LINES
echo "newcomer's hour: as it should be, in $SECONDS s"

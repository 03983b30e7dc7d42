#!/bin/sh
# The published start (docs/ORIGINS.md, S0): Qwen2.5-1.5B's shape, --max-model-len 1024,
# --max-num-seqs 256, every program compiled and run before the first request. Ours with the default
# buckets and with the published 24 shapes, on the native backend and on a PJRT plugin (XLA's CPU one,
# where tools/setup.sh pjrt has fetched it), with an empty compile cache and with a full one.
#
#   bench/origin/warmup.sh             all of it; XLA's share takes minutes
#   bench/origin/warmup.sh --native    without the plugin
# HEADRACE (build/release/headrace) and PLUGIN may be set. Weights are noise (--load-format dummy):
# nothing is downloaded. The published 31.66 + 197.66 s are a TPU's; what can be compared is what a
# user waits for. The result goes to bench/results.
set -eu
cd "$(dirname "$0")/../.."

plugins=1
[ "${1:-}" != --native ] || { plugins=0; shift; }
[ $# = 0 ] || { echo "usage: bench/origin/warmup.sh [--native]" >&2; exit 2; }
headrace=${HEADRACE:-build/release/headrace}
plugin=${PLUGIN:-.cache/pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so}
[ -e "$plugin" ] || plugins=0
results=bench/results
mkdir -p "$results"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

mkdir "$work/model"
cat >"$work/model/config.json" <<'JSON'
{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
 "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
 "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936,
 "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
 "tie_word_embeddings": true, "torch_dtype": "bfloat16", "bos_token_id": 151643,
 "eos_token_id": 151645}
JSON
# prefill of one prompt at 7 lengths, decode of 17 batches: their 24 shapes as our two lists
cat >"$work/buckets.json" <<'JSON'
{"tokens": [8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 512, 1024],
 "requests": [8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256]}
JSON

# NAME FLAGS…: one cold and one warm start, as a line of JSON
start() {
    name=$1
    shift
    echo "$name …" >&2
    printf '%s\t' "$name" >>"$work/all"
    "$headrace" bench startup "$work/model" --load-format dummy --max-model-len 1024 \
        --max-num-seqs 256 --num-iters 1 --json "$@" >>"$work/all"
}

start "native, default buckets"
start "native, 24 shapes" --buckets "$work/buckets.json" --max-num-batched-tokens 1024
if [ "$plugins" = 1 ]; then
    # a cache for a few requests: the plugin would fill 7 GiB with zeros, which compiles nothing
    kv="--kv-cache-memory-bytes 536870912"
    # shellcheck disable=SC2086
    start "XLA CPU, default buckets" --device "pjrt:$plugin" $kv
    # shellcheck disable=SC2086
    start "XLA CPU, 24 shapes" --device "pjrt:$plugin" $kv \
        --buckets "$work/buckets.json" --max-num-batched-tokens 1024
fi

python3 - "$work/all" "$results/origin_warmup.json" >"$results/origin_warmup.txt" <<'PYTHON'
import json
import os
import re
import sys

runs = {}
for line in open(sys.argv[1]):
    name, result = line.split("\t", 1)
    runs[name] = json.loads(result)
json.dump(runs, open(sys.argv[2], "w"), indent=1)
cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
print(f"{'seconds':<28}{'programs':>10}{'load':>10}{'compile':>10}{'cached':>10}")
print(f"{'published, TPU, 24 shapes':<28}{24:>10}{'':>10}{31.66 + 197.66:>10.2f}{'':>10}")
for name, r in runs.items():
    cold, warm = r["cold"], r["warm"]
    print(f"{name:<28}{r['programs']:>10}{cold['load_s']['median']:>10.2f}"
          f"{cold['compile_s']['median']:>10.2f}{warm['compile_s']['median']:>10.2f}")
print("compile: every program compiled and run once; cached: the same start again")
print(f"here: {os.cpu_count()} processors ({cpu[1] if cpu else 'unknown'})")
PYTHON
cat "$results/origin_warmup.txt"

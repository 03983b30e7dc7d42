#!/bin/sh
# The published serving workload (docs/ORIGINS.md, S3): 1000 prompts of 1,720 tokens, up to 128 tokens
# out of each, all sent at once, --max-model-len 2048; our figures beside the published ones.
#
#   bench/origin/serving.sh            the whole workload
#   bench/origin/serving.sh --quick    100 prompts of it
# MODEL (smollm2-135m), HEADRACE (build/release/headrace) and FLAGS, for the server, may be set.
# The published figures are a w8a8 Llama's on an accelerator: what can be compared is
# the shape (who waits how long for whom), not the speed. The result goes to bench/results.
set -eu
cd "$(dirname "$0")/../.."

prompts=1000
[ "${1:-}" != --quick ] || { prompts=100; shift; }
[ $# = 0 ] || { echo "usage: bench/origin/serving.sh [--quick]" >&2; exit 2; }
headrace=${HEADRACE:-build/release/headrace}
model=${MODEL:-smollm2-135m}
results=bench/results
mkdir -p "$results"
log=$(mktemp)
server=

finish() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -f "$log"
}
trap finish EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2086
"$headrace" serve "$model" --port 0 --max-model-len 2048 --check-recompilation \
    --disable-log-requests ${FLAGS:-} 2>"$log" &
server=$!
address=
while [ -z "$address" ]; do
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    address=$(sed -n 's/.*\(http:\/\/127\.0\.0\.1:[0-9]*\).*/\1/p' "$log" | head -n 1)
    sleep 0.1
done
until curl -sf "$address/health" >/dev/null; do
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
done

# not through a pipe: a benchmark that fails must end this script
"$headrace" bench serve --base-url "$address" --tokenizer "$model" --num-prompts "$prompts" \
    --random-input-len 1720 --random-output-len 128 --save-result --result-dir "$results" \
    --result-filename origin_serving.json >"$results/origin_serving.txt"
late=$(curl -sf "$address/programs" | python3 -c \
    'import json, sys; print(json.load(sys.stdin)["late_compilations"])')
MODEL_NAME=$model LATE=$late python3 - "$results/origin_serving.json" \
    >>"$results/origin_serving.txt" <<'PYTHON'
import json
import os
import re
import sys

r = json.load(open(sys.argv[1]))
cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
published = [  # label, before and after their fix, ours
    ("prompts", 1000, 1000, r["completed"]),
    ("failed", 0, 0, r["failed"]),
    ("input tokens", 1720000, 1720000, r["total_input_tokens"]),
    ("output tokens", 120700, 120700, r["total_output_tokens"]),
    ("duration s", 171.10, 170.58, r["duration"]),
    ("req/s", 5.84, 5.86, r["request_throughput"]),
    ("output tok/s", 706.46, 706.46, r["output_throughput"]),
    ("total tok/s", 10759, 10790, r["total_token_throughput"]),
]
for name, rows in {"ttft": [(84022, 83929), (83897, 83773), (166727, 166358)],
                   "tpot": [(44.75, 44.66), (45.22, 45.12), (45.90, 45.76)],
                   "itl": [(44.73, 44.67), (45.18, 45.10), (47.79, 46.79)]}.items():
    for kind, (before, after) in zip(("mean", "median", "p99"), rows):
        published.append((f"{name.upper()} {kind} ms", before, after, r[f"{kind}_{name}_ms"]))
print(f"{'':<18}{'published':>14}{'after fix':>14}{'here':>14}")
for label, before, after, here in published:
    print(f"{label:<18}" + "".join(f"{v:>14,.2f}" if isinstance(v, float) else f"{v:>14,}"
                                   for v in (before, after, here)))
print(f"here: {os.environ['MODEL_NAME']} on {os.cpu_count()} processors "
      f"({cpu[1] if cpu else 'unknown'}); late compiles: {os.environ['LATE']}")
PYTHON
cat "$results/origin_serving.txt"
[ "$late" = 0 ] || { echo "a program was compiled late" >&2; exit 1; }

#!/bin/sh
# Every fuzz target for MINUTES each (60), two at a time, on from what an earlier run has learnt:
#   tests/fuzz/long.sh [MINUTES] [TARGET…]
# What is found lies in build/fuzz/found; copy it to tests/fuzz/corpus/<what> with its fix.
set -e
cd "$(dirname "$0")/../.."
minutes=${1:-60}
[ "$minutes" -gt 0 ] || { echo "usage: tests/fuzz/long.sh [MINUTES] [TARGET...]" >&2; exit 2; }
[ $# -gt 0 ] && shift
cmake --preset fuzz >/dev/null
ninja -C build/fuzz fuzz >/dev/null
[ $# -gt 0 ] || set -- $(ls tests/fuzz/fuzz_*.c | sed 's|.*/fuzz_||; s|\.c$||')
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
printf '%s\n' "$@" | xargs -P 2 -I{} sh -c '
    mkdir -p build/fuzz/learnt/{} build/fuzz/found/{}
    words=tests/fuzz/{}.dict
    build/fuzz/fuzz_{} -max_total_time=$(('"$minutes"' * 60)) -timeout=10 -max_len=16384 \
        -rss_limit_mb=2048 -artifact_prefix=build/fuzz/found/{}/ \
        $([ -f $words ] && echo -dict=$words) build/fuzz/learnt/{} tests/fuzz/corpus/{} \
        >build/fuzz/{}.log 2>&1 || { echo "{}: found something: build/fuzz/{}.log"; exit 255; }
    echo "{}: $(grep -o "Done [0-9]* runs" build/fuzz/{}.log)"'

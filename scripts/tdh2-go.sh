#!/bin/sh
# Lets the Go program smartcontractkit/tdh2 verify and open what our code wrote for it (crypto/src/tdh2/sckt.rs):
# scripts/tdh2-go.sh CHECKOUT, a clone of github.com/smartcontractkit/tdh2. Without Go or checkout it is skipped.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
package=${1:-}/go/tdh2/tdh2
command -v go >/dev/null 2>&1 || { echo "skipped: no Go here" >&2; exit 0; }
[ -d "$package" ] || { echo "skipped: no checkout of smartcontractkit/tdh2 at '${1:-}'" >&2; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"; rm -f "$package/sealcast_read_test.go"' EXIT
export SEALCAST_TDH2_OUT="$work/ours.json"
# Not through a pipe: a shell sees only how the last command of a pipe ends.
(cd "$here" && cargo test --quiet -p sealcast-crypto --lib data_of_ours_verifies_and_opens -- --nocapture) >"$work/said"
sed -n '/^{/,/^}/p' "$work/said" >"$SEALCAST_TDH2_OUT"
[ -s "$SEALCAST_TDH2_OUT" ] || { echo "the test of sealcast-crypto printed no data" >&2; exit 1; }
cp "$here/scripts/tdh2_read_test.go" "$package/sealcast_read_test.go"
(cd "$package" && go test -count=1 -run TestReadsSealcast .)

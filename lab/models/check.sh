#!/bin/sh
# Checks the models: lab/models/check.sh. Needs `verifpal`: cargo +nightly install verifpal --locked --ignore-rust-version
# (1.6.7 asks for Rust 1.98; a nightly of 1.97 builds it). Takes some five minutes, nearly all of them for kdc.vp.
set -eu
cd "$(dirname "$0")"
command -v verifpal >/dev/null || {
    echo "models: no verifpal; type: cargo +nightly install verifpal --locked --ignore-rust-version" >&2
    exit 4
}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

fails() { # fails MODEL WHY: says why, and how to see it
    echo "$1.vp: $2; see: verifpal verify $1.vp --sessions $sessions" >&2
    exit 1
}

verified() { # verified MODEL: what verifpal exits with: 0 no attack, 2 an attack, and anything else that it could not tell
    code=0
    verifpal verify "$1.vp" --sessions "$sessions" --fail-on-attack >"$out" 2>&1 || code=$?
}

holds() { # holds MODEL: at one session and at two
    for sessions in 1 2; do
        verified "$1"
        case $code in
        0) echo "$1.vp: holds at $sessions session(s)" ;;
        2) fails "$1" "an attack was found at $sessions session(s)" ;;
        *) fails "$1" "verifpal ended with $code" ;;
        esac
    done
}

found() { # found MODEL QUERY…: at two sessions these queries fail, and no others
    fault=$1
    shift
    sessions=2
    verified "$fault"
    [ $code = 2 ] || fails "$fault" "the planted fault was not found (verifpal ended with $code)"
    for query; do
        grep -qF "FAIL x $query" "$out" || fails "$fault" "no attack on '$query'"
    done
    # Last, verifpal says how many of all queries failed.
    grep -q "FAIL x $# of [0-9]* quer" "$out" || fails "$fault" "attacks on other queries than these $#"
    echo "$fault.vp: the planted fault is found"
}

for model in invite ring capture kdc; do
    holds $model
done
found ring_without_nonce "equivalence? keyj, keym"
found invite_unbound "authentication? Authority -> Joiner: sealed"
found capture_unasked "confidentiality? payload" "authentication? Partner -> Newcomer: xp"
found kdc_without_labels "confidentiality? sigma" "confidentiality? secret" "authentication? Leader -> Member: entry"
found kdc_without_nonce "authentication? Centre -> Leader: proof"
found kdc_without_runs "authentication? Leader -> Member: challenge"

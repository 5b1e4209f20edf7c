#!/bin/sh
# Checks the models: lab/models/check.sh. Needs `verifpal` (cargo install verifpal; it asks for a recent compiler).
set -eu
cd "$(dirname "$0")"
command -v verifpal >/dev/null || { echo "models: type: cargo install verifpal (an older compiler: --ignore-rust-version)" >&2; exit 4; }
for model in invite ring capture kdc; do
    for sessions in 1 2; do
        verifpal verify "$model.vp" --sessions "$sessions" --fail-on-attack >/dev/null || {
            echo "$model.vp: an attack was found at $sessions sessions; see: verifpal verify $model.vp --sessions $sessions" >&2
            exit 1
        }
        echo "$model.vp: holds at $sessions session(s)"
    done
done
for fault in ring_without_nonce invite_unbound capture_unasked kdc_without_labels kdc_without_nonce kdc_without_runs; do
    if verifpal verify "$fault.vp" --sessions 2 --fail-on-attack >/dev/null; then
        echo "$fault.vp: the planted fault was not found" >&2
        exit 1
    fi
    echo "$fault.vp: the planted fault is found"
done

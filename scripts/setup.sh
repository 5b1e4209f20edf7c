#!/bin/sh
# Installs what building and testing need, where it may; otherwise says in one line what to type.
set -eu

missing=""
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }

need cc gcc
need make make
need ip iproute2
need nft nftables
need python3 python3
need mosquitto mosquitto
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
[ -e /usr/include/lcm/lcm.h ] || [ -e /usr/local/include/lcm/lcm.h ] || missing="$missing liblcm-dev"

if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing$missing" >&2
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >/dev/null 2>&1 || {
            echo "setup: could not install; type: apt-get update && apt-get install$missing" >&2
            exit 1
        }
    else
        echo "setup: type: sudo apt-get install$missing" >&2
        exit 1
    fi
fi

if ! command -v cargo >/dev/null 2>&1; then
    [ -x "$HOME/.cargo/bin/cargo" ] && { echo "setup: type: . \"\$HOME/.cargo/env\"" >&2; exit 1; }
    echo "setup: Rust is missing; type: sudo apt-get install rustup && rustup toolchain install stable   (or see rustup.rs)" >&2
    exit 1
fi

#!/bin/sh
# Python `lcm`, the original implementation, and `cryptography`, for docs/peer/read.py, in a virtual environment:
# scripts/interop.sh DIR
set -eu
venv=$1
"$venv/bin/python" -c 'import lcm, cryptography' 2>/dev/null && exit 0
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'lcm>=1.5.1' 'cryptography>=43' || {
    echo "interop: could not install Python lcm and cryptography; type: $venv/bin/pip install lcm cryptography" >&2
    exit 1
}
"$venv/bin/python" -c 'import lcm, cryptography'

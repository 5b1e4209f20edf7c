#!/bin/sh
# Python `lcm`, the original implementation, in a virtual environment: scripts/interop.sh DIR
set -eu
venv=$1
"$venv/bin/python" -c 'import lcm' 2>/dev/null && exit 0
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'lcm>=1.5.1' || {
    echo "interop: could not install Python lcm; type: $venv/bin/pip install lcm" >&2
    exit 1
}
"$venv/bin/python" -c 'import lcm'

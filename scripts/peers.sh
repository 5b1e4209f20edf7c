#!/bin/sh
# Installs and builds the peers that figures compare with, into out/peers: scripts/peers.sh [VENV]
#
#   lcm_peer   the original LCM, called from C (lab/peers/lcm_peer.c): with Debian's liblcm-dev where it
#              is installed, else with the library inside the Python wheel `lcm`
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv}
out=out/peers
mkdir -p "$out"

build() { # build FLAGS…
    cc -O2 -Wall -Wextra -o "$out/lcm_peer.$$" lab/peers/lcm_peer.c "$@" -lpthread && mv "$out/lcm_peer.$$" "$out/lcm_peer"
}

if printf '#include <lcm/lcm.h>\nint main(void){return !lcm_create;}\n' | cc -xc - -o "$out/probe.$$" -llcm 2>/dev/null; then
    rm -f "$out/probe.$$"
    build -llcm
    version=$(dpkg-query -W -f '${Version}' liblcm1 2>/dev/null || echo "of this system")
    echo "liblcm $version, C" >"$out/lcm_peer.version"
else
    scripts/interop.sh "$venv"
    site=$("$venv/bin/python" -c 'import lcm, os; print(os.path.dirname(os.path.dirname(lcm.__file__)))')
    lib=$(find "$site" "$venv/lib" -name liblcm.so 2>/dev/null | head -n 1)
    include=$(find "$site" "$venv/include" -path '*lcm/lcm.h' 2>/dev/null | head -n 1)
    if [ -z "$lib" ] || [ -z "$include" ]; then
        echo "peers: liblcm is missing; type: sudo apt-get install liblcm-dev" >&2
        exit 1
    fi
    build -I"$(dirname "$(dirname "$include")")" "$lib" -Wl,-rpath,"$(dirname "$lib")"
    echo "liblcm $("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("lcm"))') of the Python wheel, C" >"$out/lcm_peer.version"
fi
echo "peers: $(cat "$out/lcm_peer.version") -> $out/lcm_peer"

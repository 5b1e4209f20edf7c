#!/bin/sh
# Installs and builds the peers that figures compare with, into out/peers: scripts/peers.sh [lcm|kafka|nats|jgroups|aeron|norm|openmls]; all without one
#
#   lcm     the original LCM, called from C (lab/peers/lcm_peer.c): with Debian's liblcm-dev where it
#           is installed, else with the library inside the Python wheel `lcm`
#   kafka   Kafka's server and client, by Maven, and what loads it (lab/peers/kafka)
#   nats    the NATS server, by Go, and what loads it (lab/peers/nats)
#   jgroups, aeron   each by Maven, and a member that speaks lines (lab/peers/jgroups, lab/peers/aeron)
#   norm    Debian's libnorm-dev, called from C++ (lab/peers/norm_peer.cc)
#   openmls OpenMLS, by Cargo, as members that speak lines (lab/peers/openmls)
set -eu
cd "$(dirname "$0")/.."
out=out/peers
mkdir -p "$out"

kafka=4.3.1
nats=v2.15.2
jgroups=5.5.4.Final
aeron=1.47.4

build_lcm() { # build_lcm FLAGS…
    cc -O2 -Wall -Wextra -o "$out/lcm_peer.$$" lab/peers/lcm_peer.c "$@" -lpthread && mv "$out/lcm_peer.$$" "$out/lcm_peer"
}

peer_lcm() {
    if printf '#include <lcm/lcm.h>\nint main(void){return !lcm_create;}\n' | cc -xc - -o "$out/probe.$$" -llcm 2>/dev/null; then
        rm -f "$out/probe.$$"
        build_lcm -llcm
        version="$(dpkg-query -W -f '${Version}' liblcm1 2>/dev/null || echo "of this system"), C"
    else
        venv=.venv
        scripts/interop.sh "$venv"
        site=$("$venv/bin/python" -c 'import lcm, os; print(os.path.dirname(os.path.dirname(lcm.__file__)))')
        lib=$(find "$site" "$venv/lib" -name liblcm.so 2>/dev/null | head -n 1)
        include=$(find "$site" "$venv/include" -path '*lcm/lcm.h' 2>/dev/null | head -n 1)
        if [ -z "$lib" ] || [ -z "$include" ]; then
            echo "peers: liblcm is missing; type: sudo apt-get install liblcm-dev" >&2
            return 1
        fi
        build_lcm -I"$(dirname "$(dirname "$include")")" "$lib" -Wl,-rpath,"$(dirname "$lib")"
        version="$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("lcm"))') of the Python wheel, C"
    fi
    echo "liblcm $version" >"$out/lcm_peer.version"
    echo "peers: $(cat "$out/lcm_peer.version") -> $out/lcm_peer"
}

needs() { # needs PACKAGES TOOLS…: fails with what to type where a tool is missing
    type=$1
    shift
    for tool; do
        command -v "$tool" >/dev/null 2>&1 || {
            echo "peers: no $tool; type: $type" >&2
            return 1
        }
    done
}

java_peer() { # java_peer NAME TITLE VERSION MAIN: its jars by Maven, and our program for it
    needs "sudo apt-get install default-jdk-headless maven" java javac mvn
    folder="$out/$1"
    if ! grep -qs " $3," "$folder/version"; then
        rm -rf "$folder/jars" "$folder/version"
        mvn -q -B -Dstyle.color=never -f "lab/peers/$1/pom.xml" "-D$1.version=$3" -Dmaven.repo.local="$PWD/$folder/maven" \
            dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/$folder/jars"
    fi
    mkdir -p "$folder/classes"
    javac -cp "$folder/jars/*" -d "$folder/classes" "lab/peers/$1/$4.java"
    echo "$2 $3, Java $(java -version 2>&1 | sed -n '1s/.*"\(.*\)".*/\1/p')" >"$folder/version"
    echo "peers: $(cat "$folder/version") -> $folder"
}

peer_kafka() {
    java_peer kafka Kafka $kafka Load
}

peer_jgroups() {
    java_peer jgroups JGroups $jgroups Peer
}

peer_aeron() {
    java_peer aeron Aeron $aeron Peer
}

peer_norm() {
    needs "sudo apt-get install g++" c++
    mkdir -p "$out/norm"
    if ! printf '#include <normApi.h>\nint main(void){return !NormCreateInstance;}\n' | c++ -xc++ - -o "$out/norm/probe" -lnorm 2>/dev/null; then
        echo "peers: libnorm is missing; type: sudo apt-get install libnorm-dev" >&2
        return 1
    fi
    rm -f "$out/norm/probe"
    c++ -O2 -Wall -Wextra -o "$out/norm/norm_peer" lab/peers/norm_peer.cc -lnorm -lpthread
    echo "NORM $(dpkg-query -W -f '${Version}' libnorm1 2>/dev/null || echo "of this system"), C++" >"$out/norm/version"
    echo "peers: $(cat "$out/norm/version") -> $out/norm"
}

peer_nats() {
    needs "sudo apt-get install golang" go
    export GOMODCACHE="$PWD/$out/go/mod" GOCACHE="$PWD/$out/go/cache" GOBIN="$PWD/$out/nats" GOFLAGS=-modcacherw
    if ! "$out/nats/nats-server" --version 2>/dev/null | grep -q " $nats\$"; then
        go install "github.com/nats-io/nats-server/v2@$nats"
    fi
    (cd lab/peers/nats && go build -buildvcs=false -o "$GOBIN/nats_load" .)
    echo "NATS $nats, $(go version | cut -d' ' -f3)" >"$out/nats/version"
    echo "peers: $(cat "$out/nats/version") -> $out/nats"
}

peer_openmls() {
    needs "see https://rustup.rs" cargo
    mkdir -p "$out/openmls"
    cargo build --quiet --release --locked --manifest-path lab/peers/openmls/Cargo.toml --target-dir "$out/openmls/target"
    cp "$out/openmls/target/release/openmls_peer" "$out/openmls/openmls_peer.$$"
    mv "$out/openmls/openmls_peer.$$" "$out/openmls/openmls_peer"
    version=$(sed -n '/^name = "openmls"$/{n;s/version = "\(.*\)"/\1/p}' lab/peers/openmls/Cargo.lock)
    echo "OpenMLS $version" >"$out/openmls/version"
    echo "peers: $(cat "$out/openmls/version") -> $out/openmls"
}

case ${1:-all} in
lcm | kafka | nats | jgroups | aeron | norm | openmls) "peer_$1" ;;
all)
    failed=
    for peer in lcm kafka nats jgroups aeron norm openmls; do
        scripts/peers.sh $peer || failed="$failed $peer"
    done
    [ -z "$failed" ] || {
        echo "peers: not installed:$failed; their rows print 'not run'" >&2
        exit 1
    }
    ;;
*)
    echo "usage: scripts/peers.sh [lcm|kafka|nats|jgroups|aeron|norm|openmls]" >&2
    exit 2
    ;;
esac

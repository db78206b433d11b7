#!/bin/sh
# An installation controls: installed_control.sh BIN CONFIG VLAN SWITCH:PORT REST. Under dets run and under ryu-manager a limit
# is set and reset over REST, and the process ends when asked.
set -eu
bin=$1 config=$2 vlan=$3 place=$4 url=http://$5
log=$(mktemp)
pid=
trap 'status=$?; [ $status = 0 ] || cat "$log" >&2; [ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -f "$log"; exit $status' EXIT
ask() { # METHOD PATH [BODY]: what the VN's resource answers
    "$bin/python" -c '
import sys, urllib.request
url, method, path, *body = sys.argv[1:]
headers = {"Content-Type": "application/json"}
request = urllib.request.Request(url + path, body[0].encode() if body else None, headers, method=method)
print(urllib.request.urlopen(request, timeout=5).read().decode())' "$url/v1/vns/$vlan/${place%:*}/${place#*:}" "$@"
}
has_limit() { ask GET '' | grep '"receive_limit_bps": *5000000\b' >/dev/null; }
controls() { # NAME COMMAND ...
    name=$1
    shift
    "$@" >"$log" 2>&1 &
    pid=$!
    tries=0
    until ask GET '' >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] && kill -0 $pid || { echo "$name does not answer" >&2; exit 1; }
        sleep 0.3
    done
    ask PATCH '' '{"receive_limit_bps": 5000000}' >/dev/null
    has_limit || { echo "$name: the limit is not set" >&2; exit 1; }
    ask DELETE /overrides >/dev/null
    ! has_limit || { echo "$name: the limit stays" >&2; exit 1; }
    kill $pid
    wait $pid || { echo "$name ended with status $?" >&2; exit 1; }
    pid=
    echo "$name: limit set and reset"
}
controls "dets run" "$bin/dets" run --config "$config"
controls "ryu-manager" "$bin/ryu-manager" --dets-config "$config" apps.dets

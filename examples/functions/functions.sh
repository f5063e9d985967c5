#!/bin/sh
# Functions of one's own from a shell: curl is all it takes.
#
#   functions.sh register squash.json     registers a definition (here one for all sessions of the server)
#   functions.sh apply squash '[1, -3]'   prints what it makes of a tensor, and the gradient of the sum
#   functions.sh remove squash            has the server forget it
#
# The server is the one that TELEGRAD_URL names.
set -eu
SESSIONS="${TELEGRAD_URL:-http://127.0.0.1:8000}/v1/sessions"

send() { # METHOD PATH [BODY, or @FILE]
    method=$1 path=$2
    shift 2
    [ $# -eq 0 ] || set -- --header 'content-type: application/json' --data "$1"
    curl --silent --show-error --fail-with-body --request "$method" "$SESSIONS$path" "$@"
}

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 2 ] || usage
ID=$(send POST "" '{}' | sed 's/.*"id": *"\([^"]*\)".*/\1/')
trap 'send DELETE "/$ID"' EXIT

case $1 in
register)
    send POST "/$ID/functions" "@$2"
    ;;
apply)
    [ $# -eq 3 ] || usage
    send POST "/$ID/tensors" "{\"id\": \"x\", \"data\": $3, \"dtype\": \"float64\", \"requires_grad\": true}" >/dev/null
    send POST "/$ID/functions/$2/apply?data=true" '{"inputs": ["x"], "outputs": ["y"]}'
    echo
    send POST "/$ID/ops/sum" '{"inputs": ["y"], "outputs": ["total"]}' >/dev/null
    send POST "/$ID/grad" '{"outputs": ["total"], "inputs": ["x"]}'
    ;;
remove)
    send DELETE "/$ID/functions/$2?scope=server"
    ;;
*)
    usage
    ;;
esac
echo

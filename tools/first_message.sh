#!/bin/sh
# Shows that tandembus works: first_message.sh [COMMAND...] serves a namespace, sends it a message, receives that and names the
# build. COMMAND serves it, in this folder and for the tandembus on the PATH; without one that serves in a new folder.
set -eu
folder=$(mktemp -d)
if [ $# -eq 0 ]; then
    cd "$folder"
    set -- tandembus serve --amqp-port 0 --amqps-port off --http-port 0
fi
: >"$folder/log"  # it may be looked at before the server has made it
"$@" >"$folder/log" 2>&1 &
server=$!
trap 'kill $server && wait $server || true; rm -rf "$folder"' EXIT
until grep -q '^ready' "$folder/log"; do
    kill -0 $server || { cat "$folder/log"; exit 1; }
    sleep 0.05
done
tandembus queue create orders
tandembus send orders "the first message"
tandembus receive orders | grep "the first message"
tandembus version

#!/bin/sh
# The image's entry point: serves a namespace, or runs another command of tandembus.
#
# Where the official emulator would start (its licence is accepted, or its Config.json is mounted), the namespace takes its place
# and accepts the key that everybody knows. Otherwise it refuses that key and has one of its own.
set -eu
case ${1-} in
serve) shift ;;
'' | -*) ;;
*) exec tandembus "$@" ;;
esac
if [ -n "${ACCEPT_EULA-}" ] || [ -e /ServiceBus_Emulator/ConfigFiles/Config.json ]; then
    exec tandembus serve --emulator --open-emulator-key "$@"
fi
exec tandembus serve "$@"

#!/bin/sh
# Installs the given Debian packages where the commands or files they bring are missing, if we may:
#   system_packages.sh WHY PACKAGE... -- TEST...
# TEST is a command that succeeds when nothing needs to be installed. Never fails: what is missing is said, and
# whoever needs it does without.
why=$1; shift
packages=""
while [ "$1" != "--" ]; do packages="$packages $1"; shift; done
shift
"$@" >/dev/null 2>&1 && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "notice: $why needs the packages$packages, which cannot be installed here (not root, or no apt-get)"
    exit 0
fi
echo "installing$packages ($why)"
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then # a package must not start its service here: whoever needs it runs it as its own process
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
fi
# shellcheck disable=SC2086 # the list is meant to be split
{ apt-get -o Acquire::Languages=none update && apt-get install -y --no-install-recommends $packages; } >/dev/null 2>&1 \
    || echo "notice: installing$packages failed: going on without ($why)"

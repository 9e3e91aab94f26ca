#!/bin/bash
# Shows what a clone needs on a machine that has nothing: fresh_machine.sh [PROOF...], as root, where debootstrap is installed.
#   up        `make up` until both namespaces are ready, without a compiler: as root without python3-venv, and as an
#             ordinary user
#   compiler  the same with a compiler, until the compiled build runs
#   pip       `pip install .` with build isolation, without and with a compiler
#   deb       the Debian package from its installation to the first message, then until nothing is left of it
#   first     from nothing to the first message: `make up`, both wheels, the root of the container, the Debian package
#   test      `make test` as root, then as an ordinary user in a clone of its own
# Without arguments all of them. Each runs in a new Debian of its own, in FOLDER (default /var/tmp/fresh-machine), which needs
# 15 GB. The clone is of the last commit; wheels and package are those in dist (`make wheels deb`). A table of all that was
# measured comes last. Of this machine come: the clock, the network and how registries are reached (proxies, certificates,
# settings of pip, npm and apt). Megabytes are those that all interfaces but the loopback received, where nothing else should
# load anything meanwhile, and those of the clone, wheel or package.
set -euo pipefail
cd "$(dirname "$0")/.."
FOLDER=${FOLDER:-/var/tmp/fresh-machine}
SUITE=${SUITE:-bookworm}
COMPILER="gcc libc6-dev python3-dev"
SETTINGS='^declare -x (PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|PROXY|CERT|DEFAULT_TIMEOUT)|[A-Za-z]+_(proxy|PROXY)=|SSL_CERT_|REQUESTS_CA_BUNDLE'
SETTINGS+='|(npm_config|NPM_CONFIG)_(registry|REGISTRY|cafile|CAFILE|proxy|PROXY)|CURL_CA_BUNDLE|GIT_SSL_|NODE_EXTRA_CA_CERTS)'
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
failed=0 table=""
measurements=0 brought=0

# machine NAME PACKAGE...: a new Debian with these packages, the user `tester`, and the clone's source
machine() {
    local root=$FOLDER/$1
    shift
    if [ ! -e "$FOLDER/base.ready" ]; then
        rm -rf "$FOLDER/base"
        debootstrap --variant=minbase --include=ca-certificates,git,make,python3 "$SUITE" "$FOLDER/base" >"$FOLDER/base.log"
        touch "$FOLDER/base.ready"
    fi
    rm -rf "$root"
    cp -a "$FOLDER/base" "$root"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    cp -L $CERTIFICATES "$root$CERTIFICATES"
    for file in /etc/pip.conf /etc/npmrc; do
        [ ! -e $file ] || cp $file "$root$file"
    done
    chroot "$root" useradd --create-home tester
    for file in .npmrc .config/pip/pip.conf; do
        [ ! -e ~/$file ] || for home in root home/tester; do
            mkdir -p "$(dirname "$root/$home/$file")"
            cp ~/$file "$root/$home/$file"
        done
    done
    ! command -v apt-config >/dev/null || apt-config dump | grep -E '^Acquire::(https?|ftp|Retries|Check-Valid)' >"$root/etc/apt/apt.conf.d/99machine" || true
    export -p | grep -E "$SETTINGS" | sed 's/^declare -x/export/' >"$root/etc/machine.sh" || true
    git bundle create --quiet "$FOLDER/tandembus.bundle" HEAD
    bring "${root##*/}" "$FOLDER/tandembus.bundle"
    [ $# -eq 0 ] || inside "${root##*/}" root "apt-get update && apt-get install -y --no-install-recommends $*" >"$root.log" 2>&1 \
        || { echo "FAILED: $* in $root: see $root.log"; exit 1; }
    sync  # what is measured next does not wait for these files
}

# bring NAME FILE...: into its /tmp, as if it had been loaded from elsewhere
bring() {
    local target=$FOLDER/$1/tmp
    shift
    cp "$@" "$target"
    brought=$(cat "$@" | wc -c)
}

# inside NAME USER COMMANDS: what they start ends with them
inside() {
    local root=$FOLDER/$1 user=$2
    shift 2
    unshare --mount --pid --fork --kill-child bash -c '
        mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" && mount --rbind /dev "$0/dev"
        exec chroot "$0" su - "$1" -s /bin/bash -c "$2"' \
        "$root" "$user" "set -e; . /etc/machine.sh; export LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive; $*"
}

received_bytes() { awk '/:/ && $1 !~ /^lo:/ { sub(/.*:/, ""); sum += $1 } END { printf "%.0f", sum }' /proc/net/dev; }

# measured WHAT NAME USER COMMANDS: their output, and what they took
measured() {
    local what=$1 log before megabytes result=ok
    shift
    log=$FOLDER/$1.$((++measurements)).log
    echo "== $what"
    before=$(received_bytes)
    TIMEFORMAT="%R s, %U s user, %S s system"
    { time inside "$@" >"$log" 2>&1 || result="FAILED ($?)"; } 2>"$log.time"
    megabytes=$((($(received_bytes) - before + brought + 500000) / 1000000))
    brought=0
    if [ "$result" = ok ]; then tail -n "${SHOWN:-25}" "$log" | cut -c1-160; else tail -n 60 "$log"; failed=1; fi
    echo "-- $result: $(cat "$log.time"), $megabytes MB; all it said: $log"
    echo
    table+="| $what | $(sed 's/ s,.*//' "$log.time") | $megabytes | $(sed -nE 's/^tandembus .*(compiled|interpreted).*/\1/p' "$log" | tail -1) |"$'\n'
}

CLONE='git -c advice.detachedHead=false clone --quiet /tmp/tandembus.bundle tandembus && cd tandembus'
# Starts `make up`, waits for both, says how long that took, and stops them.
UP='up() {
    began=$(date +%s%N)
    set -m
    : >up.log  # of an earlier run, which was ready
    make up >up.log 2>&1 &
    until [ "$(grep -c "^ready" up.log)" -eq 2 ]; do kill -0 $! || { cat up.log; return 1; }; sleep 0.1; done
    ready=$(date +%s%N)
    sed -E "/^Try it/d; /^  /d; /^$/d; /^(primary|secondary) .*level/d; s/SharedAccessKey=.*/.../; s/sign-in=.*/.../" up.log
    echo "both are ready after $(((ready - began) / 1000000)) ms"
    [ $1 != compiled ] || until ls .build/compiled/*/*.whl >/dev/null 2>&1; do sleep 1; done
    echo "stopped after $((($(date +%s%N) - began) / 1000000)) ms"
    kill -INT -- -$!
    wait $! 2>/dev/null || true
}'
PACKAGES='echo "installed: $(.venv/bin/pip list --format=freeze | cut -d= -f1 | paste -sd" ")"'

prove_up() {
    machine up-root
    measured "make up as root, without python3-venv and compiler" up-root root "$CLONE; $UP; up stop; $PACKAGES"
    measured "make up again" up-root root "cd tandembus; $UP; up stop"
    machine up-user python3-venv
    measured "make up as an ordinary user, without a compiler" up-user tester "$CLONE; $UP; up stop; $PACKAGES"
}

prove_compiler() {
    machine compiler python3-venv "$COMPILER"
    measured "make up with a compiler, until it has compiled" compiler tester "$CLONE; $UP; up compiled"
    measured "make up again, compiled" compiler tester "cd tandembus; $UP; up stop"
}

prove_pip() {
    local install='python3 -m venv ~/v; ~/v/bin/pip install --quiet .; ~/v/bin/tandembus version'
    machine pip python3-venv
    measured "pip install . without a compiler" pip tester "$CLONE; $install"
    machine pip-compiler python3-venv "$COMPILER"
    measured "pip install . with a compiler" pip-compiler tester "$CLONE; $install"
}

size() { stat -c %s "$1" | numfmt --to=si --suffix=B --round=nearest; }

# instruction NAME: what the Dockerfile says there, one in a line
instruction() { sed -e ':a' -e '/\\$/N; s/\\\n//; ta' packaging/container/Dockerfile | sed -n "s/^$1 //p"; }

prove_first() {
    local wheel
    machine first-up
    measured "clone, \`make up\`" first-up root "$CLONE;"' PATH=$PWD/.venv/bin:$PATH tools/first_message.sh make up'
    for wheel in dist/*.whl; do
        machine first-wheel python3-venv
        bring first-wheel "$wheel" tools/first_message.sh
        measured "\`pip install\` a wheel of $(size "$wheel")" first-wheel tester \
            'python3 -m venv v; PATH=~/v/bin:$PATH; pip install --quiet /tmp/*.whl; /tmp/first_message.sh'
    done
    machine first-container python3-venv  # the base of the image
    bring first-container dist/*.whl packaging/container/entrypoint.sh tools/first_message.sh
    measured "build the container's root, start it" first-container root "
        mkdir /wheels && mv /tmp/*.whl /wheels
        $(instruction RUN | sed 's/.*/(&)/')
        install /tmp/entrypoint.sh /usr/local/bin/tandembus-entrypoint
        cd $(instruction WORKDIR)
        user=$(instruction USER)
        "'setpriv --reuid ${user%:*} --regid ${user#*:} --clear-groups'" env -i $(instruction ENV) /tmp/first_message.sh tandembus-entrypoint
        du -sh /opt/tandembus"
    first_deb
}

first_deb() {
    machine deb
    bring deb dist/*.deb tools/first_message.sh
    inside deb root "$FILES >/tmp/before"
    # As the unit starts it.
    measured "\`apt install\` a package of $(size dist/*.deb)" deb root 'apt-get install -y /tmp/*.deb
        cd /var/lib/tandembus
        setpriv --reuid tandembus --regid tandembus --clear-groups env TANDEMBUS_DATA=/var/lib/tandembus \
            /tmp/first_message.sh tandembus serve --config /etc/tandembus/tandembus.toml'
}

prove_deb() {
    first_deb
    measured "\`apt purge\` it" deb root "apt-get remove -y tandembus; test -e /var/lib/tandembus/key; ! command -v tandembus
        apt-get purge -y tandembus; $FILES | diff /tmp/before -"
}
# Every file but those of this proof and the package manager's, and who is known to the machine.
FILES='{ find / -xdev -not -path "/tmp/*" -not -path "/var/log/*" -not -path "/var/cache/*" -not -path "/var/lib/apt/*" -not -path "*/var/lib/dpkg/*-old" \
    | sort; sed s/:.*// /etc/passwd /etc/group; }'

prove_test() {
    machine test
    measured "make test as root" test root "$CLONE; make test"
    measured "make test as an ordinary user, with the packages of Debian there" test tester "$CLONE; make test"
}

[ "$(id -u)" -eq 0 ] || { echo "only root can make a chroot" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }
mkdir -p -m 700 "$FOLDER"  # settings of pip and npm may hold passwords
echo "$(git log -1 --format=%h), Debian $SUITE, $(nproc) processors of $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(date -u +%FT%RZ)"
echo
for proof in ${*:-up compiler pip first test}; do "prove_$proof"; done
printf '| what | seconds | MB loaded | build |\n|---|---|---|---|\n%s' "$table"
exit $failed

#!/bin/bash
# Makes a Debian package out of the compiled wheel in dist: deb.sh PYTHON, for the version of Python that this interpreter
# has (Debian 12: 3.11). Everything but that and the C library is inside, below /usr/lib/tandembus, as a virtual environment.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
wheel=$(ls dist/tandembus-*-cp"${version/./}"-cp"${version/./}"-manylinux*.whl)
root=.build/deb home=usr/lib/tandembus
site=$home/lib/python$version/site-packages
rm -rf $root dist/*.deb
umask 022
mkdir -p $root/{DEBIAN,$home/bin,$site,usr/bin,etc/tandembus,usr/lib/systemd/system,usr/share/doc/tandembus}
"$python" -m pip install --quiet --no-compile --only-binary :all: --target $root/$site "$wheel[pairing]"
rm -rf $root/$site/bin
ln -s /usr/bin/python"$version" $root/$home/bin/python3
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$version" >$root/$home/pyvenv.cfg
# Checked against no source: the service may not write, and dpkg removes what it has installed.
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s $root -p / $root/$site
install -m 755 packaging/debian/tandembus $root/usr/bin
install -m 644 packaging/debian/tandembus.toml $root/etc/tandembus
install -m 644 packaging/systemd/tandembus.service $root/usr/lib/systemd/system
install -m 644 LICENSE $root/usr/share/doc/tandembus/copyright
install -m 755 packaging/debian/{postinst,prerm,postrm} $root/DEBIAN
echo /etc/tandembus/tandembus.toml >$root/DEBIAN/conffiles
# The C library that the newest of the wheels inside asks for.
libc=$(grep -rhoE '^Tag: .*manylinux_2_[0-9]+' $root/$site/*.dist-info/WHEEL | grep -oE '2_[0-9]+' | sort -t_ -nk2 | tail -1)
cat >$root/DEBIAN/control <<END
Package: tandembus
Version: $(basename "$wheel" | cut -d- -f2)
Architecture: $(dpkg --print-architecture)
Depends: python$version, libc6 (>= ${libc/_/.}), passwd
Section: net
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN $root | cut -f1)
Maintainer: The tandembus authors
Description: message broker that speaks the protocol of Azure Service Bus
 A self-hosted namespace of queues and topics for the unmodified SDKs of Azure Service Bus.
END
dpkg-deb --root-owner-group -Zxz --build $root dist >/dev/null
ls -l dist/*.deb

#!/usr/bin/env bash
# Builds dist/odradek_VERSION_ARCH.deb for this machine's architecture and Debian's Python:
#
#     packaging/debian/build.sh PYTHON NFPM
#
# PYTHON has pip and the packages of requirements-build.lock. The package holds an environment with
# all that the broker needs, the extra `console` included, at /usr/lib/odradek.
set -euo pipefail
builder=$1 nfpm=$2
debian=/usr/bin/python3
root=$PWD/build/debian
home=$root/odradek
place=/usr/lib/odradek

rm -rf "$root"
mkdir -p "$root"
"$debian" -m venv --without-pip "$home"
"$builder" -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$root/wheel" .
install=("$builder" -m pip --python "$home/bin/python" install -q --no-compile --no-warn-script-location)
"${install[@]}" --require-hashes --only-binary :all: -r requirements-console.lock
"${install[@]}" --no-deps --no-index "$root"/wheel/*.whl

# Paths of the builder's machine would not be found, and tests of other packages are not run.
find "$home/bin" -type f ! -name odradek -delete
sed -i "1s|.*|#!$place/bin/python|" "$home/bin/odradek"
sed -i -E '/^(command|executable) =/d' "$home/pyvenv.cfg"
find "$home" -name direct_url.json -delete
find "$home" -type d -name tests -prune -exec rm -rf {} +
# The service may not write into its code: modules are compiled here, for the place that they get.
"$debian" -m compileall -q -j 0 -s "$home" -p "$place" --invalidation-mode unchecked-hash "$home/lib"

run=("$home/bin/python" -P -m odradek.cli.main)
"${run[@]}" init "$root" --only settings,docs >/dev/null
cp LICENSE "$root/docs/copyright"
sed -i "s|^log.dirs=.*|log.dirs=/var/lib/odradek|" "$root/server.properties"
sed "s|/usr/local/bin/odradek|/usr/bin/odradek|" packaging/systemd/odradek.service \
    > "$root/odradek.service"
_ODRADEK_COMPLETE=bash_source "$home/bin/python" -P -c \
    'from odradek.cli.main import main; main(prog_name="odradek")' > "$root/completion"

python() { "$home/bin/python" -c "$1"; }
VERSION=$(python 'from importlib.metadata import version; print(version("odradek"))')
PYTHON=$(python 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTHON_NEXT=$(python 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
ARCH=$(dpkg --print-architecture)
export VERSION PYTHON PYTHON_NEXT ARCH
mkdir -p dist
"$nfpm" package --config packaging/debian/nfpm.yaml --packager deb --target dist/

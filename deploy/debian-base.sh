#!/usr/bin/env bash
# Makes the image localhost/python-base of Debian packages, for machines without a registry. Usage: debian-base.sh PODMAN...
# EXTRA_FILES, if set, is a directory that is copied over the root: certificates or pip.conf of a private index.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
packages=python3,python3-venv,python3-pip,ca-certificates
debootstrap --variant=minbase --include="$packages" trixie "$directory/root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
ln -s python3 "$directory/root/usr/bin/python"
[ -z "${EXTRA_FILES:-}" ] || cp -rT "$EXTRA_FILES" "$directory/root"
tar -C "$directory/root" -c . | "$@" import - localhost/python-base

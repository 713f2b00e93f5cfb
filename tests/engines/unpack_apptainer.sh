#!/bin/sh
# Unpacks apptainer into a directory, from Debian's unstable, which alone has it, with the libraries that it wants: the
# host's own packages stay as they are. Needs apt-get, dpkg-deb and patchelf, and no root. Ends with 3 where Debian has none.
set -eu
mkdir -p "$1"
cd "$1"
rm -rf ./* && mkdir -p apt/lists/partial apt/cache/archives/partial libraries
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -n 1)
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key] ${mirror:?apt knows no mirror of Debian} sid main" >apt/list
set -- -qq -o "Dir::Etc::sourcelist=$PWD/apt/list" -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User= \
    -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache"
apt-get "$@" update
[ -n "$(apt-cache "$@" madison apptainer)" ] || exit 3
apt-get "$@" download apptainer libc6 libseccomp2 libsqlite3-0
dpkg-deb -x apptainer_*.deb .
for package in lib*.deb; do dpkg-deb -x "$package" apt; done
mv apt/usr/lib/*-linux-gnu/*.so* libraries
# It looks for its own files beside the program, at two levels.
mkdir -p var/lib/apptainer/mnt/session
for below in usr usr/lib; do ln -s "$PWD/etc" $below/etc && ln -s "$PWD/var" $below/var; done
# Of root it asks for every capability there is, and the host may not have them all.
sed -i 's/^root default capabilities = .*/root default capabilities = no/' etc/apptainer/apptainer.conf
for program in usr/bin/apptainer usr/lib/*/apptainer/bin/starter; do
    patchelf --set-interpreter "$(echo "$PWD"/libraries/ld-linux*)" --force-rpath --set-rpath "$PWD/libraries" $program
done
rm -rf apt ./*.deb
usr/bin/apptainer --version
touch usr/bin/apptainer

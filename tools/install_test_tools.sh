#!/bin/sh
# Installs what tests use beside Python packages. Needs Debian's apt-get and root; elsewhere it says
# what is missing, and the tests that need it skip with a reason.
set -eu

# A pattern of the program's file, and the package that has it.
tools="
/usr/bin/chromium                     chromium
/usr/lib/postgresql/*/bin/postgres    postgresql
/usr/bin/java                         openjdk-17-jre-headless
"

missing=$(echo "$tools" | while read -r program package; do
    [ -z "$program" ] || ls $program >/dev/null 2>&1 || echo "$package"
done)
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing, so that tests which need them will skip:" $missing >&2
    exit 0
fi
# The package must not start a server of its own: tests start theirs.
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
apt-get update -q && apt-get install -y -q --no-install-recommends $missing ||
    echo "Not installed, so that tests which need them will skip:" $missing >&2

#!/bin/sh
# Installs what tests use beside Python packages: Chromium, which opens reports. Needs Debian's
# apt-get and root; elsewhere it says what is missing and the tests that need it skip.
set -eu
if command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Chromium is missing: tests of the report in a browser will skip." >&2
    exit 0
fi
apt-get update -q && apt-get install -y -q --no-install-recommends chromium ||
    echo "Chromium could not be installed: tests of the report in a browser will skip." >&2

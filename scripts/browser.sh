#!/bin/sh
# Sees that there is a Chromium for the tests of the live page, and a promtool for those of its metrics: from the
# system's packages where it can.
set -eu

if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null &&
  command -v promtool >/dev/null; then exit 0; fi
sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
export DEBIAN_FRONTEND=noninteractive
if $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends chromium prometheus </dev/null >/dev/null
then exit 0; fi
echo "browser: chromium and promtool (Debian: prometheus) are needed and could not be installed; tests/monitoring will fail" >&2

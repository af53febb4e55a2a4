#!/bin/sh
# Prints the home of the first Java 17 or newer; prints nothing and exits with 1 if there is none.
# Looks at JAVA_HOME, then java on PATH, then the usual places of Linux packages, macOS and Homebrew.
set -eu

least=17

# Prints the home of the java program $1 if it is new enough. Java reports it itself, because $1 may be a link or wrapper.
home_if_new_enough() {
  [ -x "$1" ] || return 1
  settings=$("$1" -XshowSettings:properties -version 2>&1 </dev/null) || return 1
  version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p')
  home=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p')
  [ "${version:-0}" -ge "$least" ] && [ -x "$home/bin/java" ] && printf '%s\n' "$home"
}

if [ -n "${JAVA_HOME:-}" ] && home_if_new_enough "$JAVA_HOME/bin/java"; then exit 0; fi
on_path=$(command -v java || true)
if [ -n "$on_path" ] && home_if_new_enough "$on_path"; then exit 0; fi
for java in /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
  /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java; do
  if home_if_new_enough "$java"; then exit 0; fi
done
exit 1

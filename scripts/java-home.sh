#!/bin/sh
# Prints the home of the first Java of version 17 or newer; exit 1 and nothing printed where there is none.
# Looked at in this order: JAVA_HOME, java on PATH, the usual places of Linux packages, macOS and Homebrew.
set -eu

least=17

# The home of the java program $1, if it is new enough. Java itself is asked, which sees through links and wrappers.
home_if_new_enough() {
  [ -x "$1" ] || return 1
  said=$("$1" -XshowSettings:properties -version 2>&1 </dev/null) || return 1
  version=$(printf '%s\n' "$said" | sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p')
  home=$(printf '%s\n' "$said" | sed -n 's/^ *java\.home = //p')
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

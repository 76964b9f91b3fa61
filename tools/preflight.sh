#!/usr/bin/env bash
# Names what is missing before anything is installed: one line each, with the package that brings it.
set -u
python=${1:-python3}
missing=()

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || missing+=("Python 3.11+|python3")
"$python" -c 'import venv, ensurepip' 2>/dev/null || missing+=("Python's venv module|python3-venv")
command -v cc >/dev/null || missing+=("a C compiler|gcc")
java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || missing+=("Java 17+|default-jre-headless")
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    packages=("${missing[@]##*|}")
    echo "installing what is missing: ${packages[*]}" >&2
    apt-get update -qq && apt-get install -y -qq "${packages[@]}" >/dev/null && exit 0
fi
for item in "${missing[@]}"; do
    echo "missing: ${item%%|*} (Debian: apt-get install ${item##*|})" >&2
done
exit 1

#!/bin/sh
# An environment of its own for MaxText (Python 3.12, 3 GB), and a small data set. MAXTEXT_HOME says where.
set -eu
home=${MAXTEXT_HOME:-$HOME/.cache/maxtext}
cd "$(dirname "$0")"
mkdir -p "$home"
[ -x "$home/venv/bin/python" ] || "${PYTHON:-python3.12}" -m venv "$home/venv"
# pip takes minutes to choose among the versions of 238 packages, uv seconds.
if command -v uv > /dev/null; then
  uv pip install --quiet --python "$home/venv/bin/python" 'maxtext[tpu]==0.2.5'
else
  "$home/venv/bin/python" -m pip install --quiet 'maxtext[tpu]==0.2.5'
fi
"$home/venv/bin/python" data.py ../02-pretrain/alice.txt "$home/data"
echo "MaxText is in $home"

#!/bin/sh
# An environment of its own for MaxText (Python 3.12, 3 GB), and a small data set. MAXTEXT_HOME says where.
set -eu
home=${MAXTEXT_HOME:-$HOME/.cache/maxtext}
cd "$(dirname "$0")"
mkdir -p "$home"
[ -x "$home/venv/bin/python" ] || "${PYTHON:-python3.12}" -m venv "$home/venv"
"$home/venv/bin/python" -m pip install --quiet 'maxtext[tpu]==0.2.5'
"$home/venv/bin/python" data.py ../02-pretrain/alice.txt "$home/data"
echo "MaxText is in $home"

"""Print, by API, how many recorded answers the sandbox reproduces."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from replay import playing, recordings
from replay.playing import Played


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m replay", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with recordings, in files named _http.log")
    parser.add_argument("--api", action="append", help="API to replay, as the table names it (default: all)")
    parser.add_argument("--only", default="", help="part of the path of the recordings to replay")
    parser.add_argument("--differences", type=int, default=0, metavar="N", help="print the N commonest differences")
    parser.add_argument("--show", action="store_true", help="print each answer that does not agree")
    options = parser.parse_args()
    files = [file for file in recordings.files(options.folder) if options.only in str(file)]
    if not files:
        print(f"No {recordings.FILE} below {options.folder}.", file=sys.stderr)
        return 2
    played: list[Played] = []
    for file in files:
        exchanges = recordings.read(file)
        if any(_wanted(playing.api_name(one), options.api) for one in exchanges):
            with tempfile.TemporaryDirectory() as folder:
                of_file = list(playing.play(exchanges, Path(folder)))
            of_file = [one for one in of_file if _wanted(one.api, options.api)]
            played += of_file
            if options.show:
                _show(file, of_file)
    _table(played)
    _differences(played, options.differences)
    return 0


def _wanted(api: str | None, wanted: list[str] | None) -> bool:
    return api is not None and (not wanted or api in wanted)


def _table(played: Iterable[Played]) -> None:
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for one in played:
        row = rows[one.api]
        row["answers"] += 1
        row["served"] += one.served
        if one.served:
            compared = one.compared
            row["status"] += compared.status
            row["all"] += compared.agrees
            row["fields"] += compared.fields
            row["missing"] += compared.missing
            row["other"] += sum(not each.missing for each in compared.differences)
    total = Counter[str]()
    for row in rows.values():
        total.update(row)
    print("| API | recorded | served | status agrees | all fields agree | fields | agree | missing | other value |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, row in [*sorted(rows.items()), ("all", total)]:
        fields = row["fields"]
        same = fields - row["missing"] - row["other"]
        share = f"{same} ({100 * same / fields:.0f} %)" if fields else "0"
        counts = [row["answers"], row["served"], row["status"], row["all"], fields, share, row["missing"], row["other"]]
        print(f"| {name} | " + " | ".join(map(str, counts)) + " |")


def _differences(played: Iterable[Played], most: int) -> None:
    if not most:
        return
    counted = Counter(text for one in played for text in _texts(one))
    for text, count in counted.most_common(most):
        print(f"{count:6} {text}")


def _texts(one: Played) -> Iterator[str]:
    """Yield the differences. The same difference in several conversations has the same text."""
    request = f"{one.exchange.method} {_shape(one.exchange.path)}"
    if not one.served:
        yield f"{one.api}: not served: {request}"
    elif not one.compared.status:
        why = json.dumps(one.answer)[:160]
        yield f"{one.api}: {one.exchange.status} is {one.given}: {request} {why}"
    for each in one.compared.differences:
        what = "missing" if each.missing else f"is {json.dumps(each.given)[:80]}"
        yield f"{one.api}: {each.path}: {json.dumps(each.recorded)[:80]} {what}"


def _shape(path: str) -> str:
    return "/".join(part for part in path.split("/") if "$" not in part)


def _show(file: Path, played: Iterable[Played]) -> None:
    for one in played:
        if one.served and not one.compared.agrees:
            print(f"{file}: {one.exchange.method} {one.path}: {one.exchange.status}, here {one.given}")
            if not one.compared.status:
                print(f"  {json.dumps(one.answer)[:300]}")
            for each in one.compared.differences:
                print(f"  {each.path}: {each.recorded!r}, here {'nothing' if each.missing else repr(each.given)}")


if __name__ == "__main__":
    sys.exit(main())

"""Write a text as Parquet files, a row for each paragraph: `python data.py TEXT FOLDER`."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

FILES = 4  # MaxText shares files out: at least one for each host


def main(text: str, folder: str) -> None:
    paragraphs = [part for part in Path(text).read_text(encoding="utf-8").split("\n\n") if part.strip()]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        table = pa.table({"text": paragraphs[number::FILES]})
        pa.parquet.write_table(table, f"{folder}/alice-{number}.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])

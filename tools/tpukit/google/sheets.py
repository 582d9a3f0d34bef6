"""Table in a Google Sheet, replaced as one. https://developers.google.com/workspace/sheets/api/reference/rest."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from tpukit.google import clients
from tpukit.google.clients import SECONDS, address, ask_json

SHEETS = "TPUKIT_SHEETS_ENDPOINT", "https://sheets.googleapis.com/v4/"
_SCOPES = ("https://www.googleapis.com/auth/spreadsheets",)


def replace(sheet: str, tab: str, rows: Sequence[Sequence[str]]) -> int:
    """Write rows into a tab of the spreadsheet with the id `sheet`, and return the number of updated cells.

    Blank the rest of an earlier table below and beside them. Cells are text: nothing in them is read as a formula.
    """
    session = clients.session(_SCOPES)
    base = f"{address(*SHEETS)}spreadsheets/{quote(sheet, safe='')}"
    asked = f"write to the sheet {sheet}"
    fields = {"fields": "sheets.properties(title,gridProperties)"}
    about = ask_json(asked, lambda: session.get(base, params=fields, timeout=SECONDS))
    known = {one["properties"]["title"]: one["properties"].get("gridProperties", {}) for one in about.get("sheets", [])}
    if tab not in known:
        request = {"requests": [{"addSheet": {"properties": {"title": tab}}}]}
        ask_json(asked, lambda: session.post(f"{base}:batchUpdate", json=request, timeout=SECONDS))
    width = max(map(len, rows), default=0)
    height = max(len(rows), int(known.get(tab, {}).get("rowCount", 0)))
    filled = [[*row, *[""] * (width - len(row))] for row in rows]
    filled += [[""] * width for _ in range(height - len(rows))]
    name = tab.replace("'", "''")
    data = [{"range": f"'{name}'!A1", "majorDimension": "ROWS", "values": filled}]
    body = {"valueInputOption": "RAW", "data": data}
    # One request, so that readers find the old table or the new one.
    done = ask_json(asked, lambda: session.post(f"{base}/values:batchUpdate", json=body, timeout=SECONDS))
    return int(done.get("totalUpdatedCells", 0))

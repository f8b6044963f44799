"""Links from a table: one row a client, as measured.

Columns `down_bps`, `up_bps` (bit/s), and if given `rtt_s`, `seconds_per_gradient`, `cell` and `client` (the row's
client; without it row i is client i). FedScale's columns are accepted in their place: `communication` (kbit/s, both
ways) and `computation` (ms a sample of inference, of which FedScale counts three for a gradient). Others are refused.
"""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcomp.core.fingerprint import fingerprint
from fedcomp.core.validate import suggest
from fedcomp.network.links.contract import Links, Network, Seconds

OWN = ("down_bps", "up_bps", "rtt_s", "seconds_per_gradient", "cell", "client")
FEDSCALE = ("computation", "communication")
PICKLE = (
    "python -c \"import pickle, csv; rows = pickle.load(open('FILE', 'rb')).values(); "
    "out = csv.DictWriter(open('rates.csv', 'w'), ['computation', 'communication']); out.writeheader(); "
    'out.writerows(rows)"'
)

Row = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class CsvLinks(Network):
    """Rates of a file."""

    path: str
    contents: str | None = None
    seconds_per_gradient: Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path:
            raise ValueError("network.path is empty: give the CSV with the clients' rates, network.path=rates.csv")
        if self.contents is not None and self.contents != fingerprint(self.path):
            raise ValueError(
                f"network.contents={self.contents} is not the fingerprint of {self.path}: the file has changed; leave "
                "network.contents out"
            )

    def links(self, num_clients: int) -> Links:
        """Those of the file's clients 0 to N - 1. Raises ValueError: naming file, row and column."""
        columns, rows = _read(Path(self.path))
        columns, rows, notes = _own(self.path, columns, rows)
        for needed in ("down_bps", "up_bps"):
            if needed not in columns:
                raise ValueError(f"{self.path} has no column {needed}: it needs down_bps and up_bps, in bit/s")
        if self.deadline is not None and "cell" in columns:
            raise ValueError(
                f"network.deadline={self.deadline} is not for cells: remove the column cell of {self.path}"
            )
        found, more = _by_client(self.path, rows, num_clients)

        def column(name: str, default: float) -> np.ndarray:
            return np.array([row.get(name, default) for row in found], dtype=np.float64)

        cell = column("cell", 0).astype(np.int64) if "cell" in columns else None
        work = column("seconds_per_gradient", self.seconds_per_gradient)
        return self.made(column("down_bps", 0), column("up_bps", 0), column("rtt_s", 0), work, cell, (*notes, *more))


def _read(path: Path) -> tuple[list[str], list[Row]]:
    """(columns, rows) of numbers."""
    try:
        with path.open("rb") as file:
            start = file.read(1)
        if start == b"\x80" or path.suffix in (".pkl", ".pickle"):
            raise ValueError(f"{path} is a pickle, which can run code when it is read: convert it once with {PICKLE}")
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise ValueError(f"network.path={path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"network.path={path} is no CSV: it is not text") from error
    except csv.Error as error:
        raise ValueError(f"network.path={path} is no CSV: {error}") from error
    if not table:
        raise ValueError(f"{path} is empty: it needs a header line with down_bps and up_bps, and a row for each client")
    columns = [name.strip() for name in table[0]]
    if twice := [name for name in OWN + FEDSCALE if columns.count(name) > 1]:
        raise ValueError(f"{path} has {columns.count(twice[0])} columns {twice[0]}: remove all but one")
    if unknown := [name for name in columns if name not in OWN + FEDSCALE]:
        raise ValueError(
            f"{path} has an unknown column '{unknown[0]}'{suggest(unknown[0], OWN + FEDSCALE)}: rename or remove it"
        )
    return columns, [_numbers(path, number, columns, line) for number, line in enumerate(table[1:], start=1)]


def _numbers(path: Path, number: int, columns: list[str], line: list[str]) -> Row:
    if len(line) != len(columns):
        raise ValueError(f"{path}, row {number} has {len(line)} cells, but the header {len(columns)}")
    row = {}
    for name, text in zip(columns, line, strict=True):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        rate = name in ("down_bps", "up_bps", "communication")
        whole = name in ("cell", "client")
        legal = value > 0 if rate else 0 <= value < math.inf and (not whole or value == int(value))
        if not legal:
            allowed = "above 0" + (", in bit/s" if name in OWN else ", in kbit/s") if rate else "0 or more"
            raise ValueError(
                f"{path}, row {number}, column {name}: {text.strip() or 'an empty cell'} must be "
                f"{'a whole number of 0 or more' if whole else allowed}"
            )
        row[name] = value
    return row


def _own(path: str, columns: list[str], rows: list[Row]) -> tuple[list[str], list[Row], tuple[str, ...]]:
    """FedScale's columns as fedcomp's own."""
    theirs = [name for name in FEDSCALE if name in columns]
    if not theirs:
        return columns, rows, ()
    if ours := [name for name in OWN if name in columns and name not in ("client", "cell")]:
        raise ValueError(f"{path} has FedScale's column {theirs[0]} beside {ours[0]}: give one or the other")
    if "communication" not in columns:
        raise ValueError(f"{path} has FedScale's column computation without communication, the rate in kbit/s")
    changed = []
    for row in rows:
        new: Row = {name: row[name] for name in ("client", "cell") if name in row}
        new |= dict.fromkeys(("down_bps", "up_bps"), row["communication"] * 1000)
        if "computation" in row:
            new["seconds_per_gradient"] = 3 * row["computation"] / 1000
        changed.append(new)
    note = f"{path} has FedScale's columns: both rates are 1000 communication bit/s, a gradient 3 computation / 1000 s"
    return list(changed[0]) if changed else [*columns, "down_bps", "up_bps"], changed, (note,)


def _by_client(path: str, rows: list[Row], num: int) -> tuple[list[Row], tuple[str, ...]]:
    """The rows of clients 0 to num - 1 in their order, and what the user is told about the others."""
    if not rows or "client" not in rows[0]:
        if len(rows) < num:
            raise ValueError(f"{path} has {len(rows)} rows, but {num} clients need one each")
        left = len(rows) - num
        return rows[:num], (f"{path} has {left} more rows than the {num} clients: they are ignored",) if left else ()
    found: dict[int, Row] = {}
    for number, row in enumerate(rows, start=1):
        client = int(row["client"])
        if client >= num:
            raise ValueError(f"{path}, row {number}, column client: {client} is not one of the {num} clients from 0 on")
        if client in found:
            raise ValueError(f"{path}, row {number}, column client: {client} is there twice")
        found[client] = row
    missing = [client for client in range(num) if client not in found]
    if missing:
        raise ValueError(f"{path} has {len(rows)} rows, but {num} clients need one each: client {missing[0]} has none")
    return [found[client] for client in range(num)], ()

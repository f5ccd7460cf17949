"""What a simulated run gives with other values of what its profiles assume: two files in its folder.

``draws.csv`` has a row for each draw and a column for each assumed value, ``draws.ndjson`` the samples in the form of
those of the run, each with its ``draw`` among its parameters. A run without these files has no draws.
"""

from __future__ import annotations

import csv
import dataclasses
import lzma
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from rocelab.results import ResultsError, Sample, StepKey, parse_sample, sample_line

_VALUES_FILE = "draws.csv"
_SAMPLES_FILE = "draws.ndjson"
_PACKED_FILE = "draws.ndjson.xz"
_DRAW: Final = "draw"


@dataclass(frozen=True, slots=True)
class DrawnSamples:
    """The samples of every draw of a run."""

    count: int
    """How many draws there are to be."""
    samples: Mapping[int, Sequence[Sample]]
    """By draw, from 0: what has been simulated of it."""


class DrawStore:
    """The draws in a run folder. One process writes them; any number may read them meanwhile."""

    def __init__(self, run: Path) -> None:
        self._values = run / _VALUES_FILE
        self._samples = run / _SAMPLES_FILE
        self._packed = run / _PACKED_FILE

    def values(self) -> list[dict[str, float]]:
        """The values of each draw, by their names; none if there are no draws. Raises ResultsError."""
        if not self._values.exists():
            return []
        with self._values.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        try:
            return [{name: float(value) for name, value in row.items() if name != _DRAW} for row in rows]
        except (TypeError, ValueError):
            raise ResultsError(
                f"{self._values}: not a table of numbers; 'rocelab draws --anew' makes it again"
            ) from None

    def begin(self, values: Sequence[Mapping[str, float]]) -> None:
        """Keep the values of new draws. Samples of others are deleted."""
        for path in (self._samples, self._packed):
            path.unlink(missing_ok=True)
        names = list(values[0])
        with self._values.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([_DRAW, *names])
            writer.writerows([number, *(f"{draw[name]:.12g}" for name in names)] for number, draw in enumerate(values))

    def append(self, draw: int, samples: Sequence[Sample]) -> None:
        """Write the samples of a step in one go."""
        lines = [
            sample_line(dataclasses.replace(each, params={**each.params, _DRAW: draw}, log=None)) for each in samples
        ]
        with self._open() as file:
            file.write(b"".join(lines))

    def _open(self) -> IO[bytes]:
        """The samples, to go on behind the last whole one."""
        if self._packed.exists():
            self._samples.write_bytes(lzma.decompress(self._packed.read_bytes()))
            self._packed.unlink()
        self._samples.touch()
        file = self._samples.open("r+b")
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
        file.seek(whole)
        return file

    def read(self) -> DrawnSamples | None:
        """All draws, of a step that was repeated the last attempt; None if there are none. Raises ResultsError."""
        count = len(self.values())
        if count == 0:
            return None
        last: dict[tuple[int, StepKey], int] = {}
        every: list[tuple[int, Sample]] = []
        for number, line in enumerate(self._lines(), start=1):
            try:
                sample = parse_sample(line)
            except ResultsError as error:
                raise ResultsError(f"{self._samples}, line {number}: {error}") from None
            draw = sample.params.get(_DRAW)
            if not isinstance(draw, int) or not 0 <= draw < count:
                raise ResultsError(f"{self._samples}, line {number}: params.draw is no row of {self._values.name}")
            last[draw, sample.key] = sample.order
            every.append((draw, sample))
        found: dict[int, list[Sample]] = {draw: [] for draw in range(count)}
        for draw, sample in every:
            if sample.order == last[draw, sample.key]:
                found[draw].append(sample)
        return DrawnSamples(count, found)

    def keep(self, path: Path, metrics: Collection[str]) -> None:
        """Write the draws into the folder of a kept run, packed: samples of these metrics, with few details."""
        read = self.read()
        if read is None:
            return
        kept = DrawStore(path)
        kept.begin(self.values())
        lines = (
            sample_line(dataclasses.replace(each, params={_DRAW: draw}, command="", started_at="", duration_s=0.0))
            for draw, samples in read.samples.items()
            for each in samples
            if each.metric in metrics
        )
        kept._packed.write_bytes(lzma.compress(b"".join(lines), preset=9 | lzma.PRESET_EXTREME))

    def _lines(self) -> list[bytes]:
        if self._packed.exists():
            data = lzma.decompress(self._packed.read_bytes())
        else:
            data = self._samples.read_bytes() if self._samples.exists() else b""
        # What follows the last newline is empty, or the line a crash cut short.
        return data.split(b"\n")[:-1]

"""What each kind of `[[test]]` table means: its steps, and what it asks for that cannot be.

A new kind is a line here, its table in the schema, and a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rocelab.study.levels.all_pairs import AllPairsLevel
from rocelab.study.levels.base import Level, wrong_variants
from rocelab.study.levels.clouds import DfsioLevel, SparkLevel, YcsbLevel
from rocelab.study.levels.jobs import MpiLevel, NasLevel
from rocelab.study.levels.meshes import MeshLevel
from rocelab.study.levels.pairs import PairLevel
from rocelab.study.levels.programs import ProgramLevel
from rocelab.study.levels.sharing import SharingLevel
from rocelab.study.levels.side_by_side import SideBySideLevel
from rocelab.study.own_tables import ProgramTable
from rocelab.study.schema import (
    AllPairsTable,
    AnyTest,
    DfsioTable,
    MeshTable,
    MpiTestTable,
    NasTable,
    SparkTable,
    TestTable,
    YcsbTable,
)
from rocelab.study.sharing_tables import SharingTable
from rocelab.study.side_by_side_tables import SideBySideTable

__all__ = ["Level", "level_of", "wrong_variants"]

_LEVELS: Final[Mapping[type, Level[Any]]] = {
    TestTable: PairLevel(),
    MeshTable: MeshLevel(),
    SharingTable: SharingLevel(),
    SideBySideTable: SideBySideLevel(),
    AllPairsTable: AllPairsLevel(),
    MpiTestTable: MpiLevel(),
    NasTable: NasLevel(),
    ProgramTable: ProgramLevel(),
    DfsioTable: DfsioLevel(),
    YcsbTable: YcsbLevel(),
    SparkTable: SparkLevel(),
}


def level_of(test: AnyTest) -> Level[Any]:
    """What a test's kind of table means."""
    return _LEVELS[type(test)]

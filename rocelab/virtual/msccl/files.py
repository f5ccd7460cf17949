"""The key of a study that names a file of MSCCL: what is in the file takes the place of its name."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from rocelab.study.problems import WRONG_FILE
from rocelab.virtual.msccl.algorithm import AlgorithmError
from rocelab.virtual.msccl.reading import read
from rocelab.virtual.msccl.schedule import Schedule, schedule_of

#: The key of the validation's context: the folder that paths in the study begin at.
FOLDER: Final = "folder"
_FILE_MAX_BYTES: Final = 1 << 26
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A file that a study names, as it was when the study was read."""

    path: str
    """As the study has it."""
    folder: str
    """Where the path begins, if it is not absolute."""
    digest: str
    """SHA-256 of the file."""
    schedule: Schedule

    @property
    def name(self) -> str:
        """What results call it: the name of the file without its ending."""
        return _NOT_IN_NAMES.sub("-", Path(self.path).stem)


def _read(value: Any, info: ValidationInfo) -> ScheduleFile:
    if not isinstance(value, str):
        raise _wrong(repr(value), "this is not the path of a file, in quotes")
    folder = Path((info.context or {}).get(FOLDER, ".")).resolve()
    path = folder / value
    try:
        if path.stat().st_size > _FILE_MAX_BYTES:
            raise _wrong(value, f"the file is longer than {_FILE_MAX_BYTES >> 20} MiB")
        text = path.read_bytes()
        schedule = schedule_of(read(text))
    except OSError as error:
        raise _wrong(value, f"{error.strerror or error} ({path}); a path begins at the folder of the study") from None
    except AlgorithmError as error:
        raise _wrong(value, str(error)) from None
    return ScheduleFile(value, str(folder), hashlib.sha256(text).hexdigest(), schedule)


def _wrong(path: str, words: str) -> PydanticCustomError:
    return PydanticCustomError(WRONG_FILE, "{said}", {"said": f"{path}: {words}"})


#: Reads the file that a key names.
READS_FILE: Final = PlainValidator(_read)

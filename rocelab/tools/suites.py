"""The suites of MPI benchmarks: which tests each has, and the method that runs one of them."""

from __future__ import annotations

from rocelab.tools import imb, mpi_tests
from rocelab.tools.base import JobMethod, SuiteName
from rocelab.tools.imb import Imb
from rocelab.tools.osu import Osu
from rocelab.tools.rocelab_mpi import RocelabMpi


def job_method(suite: SuiteName, test: str, mpi: str, folder: str | None) -> JobMethod:
    """The method of a test that `wrong_test` has nothing against. `mpi` is the kind of MPI that starts it."""
    if suite == "imb":
        return Imb(test, folder or "")
    if suite == "osu":
        return Osu(test, folder or "")
    return RocelabMpi(test, mpi, folder)


def wrong_test(suite: SuiteName, test: str, folder: str | None) -> tuple[str, str] | None:
    """What is wrong with a test of a suite, as the key that it is about and the words; None if nothing is."""
    if suite != "rocelab" and folder is None:
        return "suite", f"{suite} is not rocelab's: add suite_folder, the folder in which you have installed it"
    if suite == "imb" and test not in imb.TESTS:
        return "test", f"IMB has no {test!r} that rocelab can read. Allowed: {', '.join(imb.TESTS)}"
    if suite == "osu" and not mpi_tests.NAME.fullmatch(test):
        return "test", f"{test!r}: tests are called as OMB's programs, without osu_, such as latency or bcast"
    if suite == "osu" and test == "hello":
        return "test", "osu_hello prints no number; rocelab's own hello does"
    return None

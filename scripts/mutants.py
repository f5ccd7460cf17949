"""Breaks the transport on purpose, one way at a time, and sees that a test of the simulator or of hostile bytes fails.

Usage: scripts/mutants.py [NAME...]   (all of them when none is named)

A test that cannot fail proves nothing. Each mutant is one edit of nic/proto or nic/wire as it is now; an edit that does
not fit any more is a failure, so that the list stays true. The crates are copied first: the tree is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

NIC = Path(__file__).resolve().parent.parent / "nic"
CRATES = ("wire", "proto", "sim", "cm", "inputs")
LIMIT_S = 300
SEEDS = 400

REQUESTER = "proto/src/rc/requester"
RESPONDER = "proto/src/rc/responder"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: in which file what is replaced by what, exactly once."""

    name: str
    path: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "executes-duplicates",
        f"{RESPONDER}/mod.rs",
        "if psn.is_before(self.expected) {",
        "if psn.is_before(self.expected) && packet.payload.is_empty() {",
    ),
    Mutant(
        "executes-repeated-atomics",
        f"{RESPONDER}/mod.rs",
        "if psn.is_before(self.expected) {",
        "if psn.is_before(self.expected) && packet.header.atomic.is_none() {",
    ),
    Mutant(
        "repeats-another-atomic",
        f"{RESPONDER}/mod.rs",
        ".find(|(logged, _)| *logged == psn)",
        ".find(|(logged, _)| logged.is_before(psn) || *logged == psn)",
    ),
    Mutant(
        "executes-across-a-gap",
        f"{RESPONDER}/mod.rs",
        "if psn.is_after(self.expected) {",
        "if psn.is_after(self.expected.next()) {",
    ),
    Mutant(
        "acknowledges-one-too-many",
        "proto/src/rc/acknowledge.rs",
        "expected.sub(1),",
        "expected,",
    ),
    Mutant(
        "never-sends-a-nak",
        f"{RESPONDER}/mod.rs",
        "if is_news || self.early.is_some() && packet.header.bth.ack_request {",
        "if false {",
    ),
    Mutant(
        "forgets-to-ask-for-receives",
        f"{RESPONDER}/execute.rs",
        "if operation.has_immediate() && receives.is_empty() {",
        "if false {",
    ),
    Mutant(
        "never-invalidates",
        f"{RESPONDER}/execute.rs",
        "if let Some(ieth) = packet.header.ieth {",
        "if let Some(ieth) = packet.header.ieth.filter(|_| false) {",
    ),
    Mutant(
        "skips-the-target-check",
        f"{RESPONDER}/execute.rs",
        """            .check_remote(connection.via(), range_of(reth), RemoteAccess::Write)
            .map_err(|_| Refusal::Access)""",
        """            .check_remote(connection.via(), range_of(reth), RemoteAccess::Write)
            .or(Ok(()))""",
    ),
    Mutant(
        "takes-any-length",
        f"{RESPONDER}/execute.rs",
        "if len > left || operation.ends_message() != (len == left) {",
        "if len > left {",
    ),
    Mutant(
        "ignores-fences",
        f"{REQUESTER}/sending.rs",
        "(wqe.fence && self.fetch_before(position))",
        "(wqe.fence && false)",
    ),
    Mutant(
        "keeps-the-wrong-packets",
        "proto/src/rc/early.rs",
        "self.packets.remove(&psn.get())",
        "{ let _ = psn; self.packets.pop_first().map(|(_, kept)| kept) }",
    ),
    Mutant(
        "steps-over-what-is-missing",
        f"{REQUESTER}/selective.rs",
        "Missing::Requests(held) => held.contains(cursor),",
        "Missing::Requests(held) => held.contains(cursor) || held.contains(cursor.next()),",
    ),
    Mutant(
        "takes-early-responses-for-missing-ones",
        f"{REQUESTER}/selective.rs",
        "            while placed.contains(to) {",
        "            while placed.contains(to) || placed.contains(to.next()) {",
    ),
    Mutant(
        "completes-what-was-sent",
        f"{REQUESTER}/receiving.rs",
        "if !front.is_started() || front.end().is_after(self.unacked) {",
        "if !front.is_started() || front.end().is_after(self.cursor) {",
    ),
    Mutant(
        "goes-back-one-too-few",
        f"{REQUESTER}/receiving.rs",
        "self.cursor = self.unacked;",
        "self.cursor = if self.in_flight() > 1 { self.unacked.next() } else { self.unacked };",
    ),
    Mutant(
        "takes-answers-out-of-order",
        f"{REQUESTER}/receiving.rs",
        "        if psn != self.unacked {",
        "        if psn != self.unacked && !connection.keeps_early {",
    ),
    Mutant(
        "never-gives-up",
        "proto/src/rc/retry.rs",
        "                return Some(Expired::GiveUp);\n            }\n            self.retries_left -= 1;",
        "                return Some(Expired::Timeout);\n            }\n            self.retries_left -= 1;",
    ),
    Mutant(
        "does-not-wait-for-receivers",
        f"{REQUESTER}/sending.rs",
        "if self.rnr_until.is_some_and(|until| until > now) {",
        "if false {",
    ),
    Mutant(
        "never-probes",
        "proto/src/rc/retry.rs",
        "if self.probe_at().is_some_and(|at| at <= now) {",
        "if false {",
    ),
    Mutant(
        "flushes-nothing",
        f"{REQUESTER}/mod.rs",
        "                .push_back(wqe.completion(qp, WcStatus::WrFlush));",
        "                .extend(None::<crate::verbs::Completion>.or_else(|| { let _ = wqe; None }));",
    ),
    Mutant(
        "delivers-cut-messages",
        "proto/src/unreliable/connected.rs",
        "} else if psn != self.expected || matches!(self.inbound, Inbound::Idle) {",
        "} else if matches!(self.inbound, Inbound::Idle) {",
    ),
    Mutant(
        "takes-any-qkey",
        "proto/src/unreliable/datagram.rs",
        "if deth.qkey != connection.qkey {",
        "if false {",
    ),
    Mutant(
        "leaves-windows-open",
        "proto/src/memory_window.rs",
        "        self.bound_for(via, rkey)?;\n        self.bound = None;",
        "        self.bound_for(via, rkey)?;",
    ),
    Mutant(
        "compares-psns-as-numbers",
        "wire/src/psn.rs",
        "(self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8",
        "self.0.wrapping_sub(other.0).cast_signed()",
    ),
    Mutant(
        "cuts-what-is-asked-for-again",
        f"{REQUESTER}/sending.rs",
        "Some(end) if is_again && !connection.keeps_early => {",
        "Some(end) if is_again && connection.transport == Transport::Ud => {",
    ),
    Mutant(
        "takes-later-answers-for-silence",
        f"{REQUESTER}/receiving.rs",
        "self.retry.handle_later_answer(now);",
        "",
    ),
    Mutant(
        "runs-over-the-end",
        f"{REQUESTER}/sending.rs",
        "let behind = wqe.packets - 2 - offset;",
        "let behind = wqe.packets - 1 - offset;",
    ),
    Mutant(
        "answers-over-the-end",
        "proto/src/rc/acknowledge.rs",
        "job.until.min(job.packets - 1).saturating_sub(job.sent);",
        "job.until.saturating_sub(job.sent);",
    ),
    Mutant(
        "executes-runs-across-a-gap",
        f"{RESPONDER}/execute.rs",
        "if packet.header.bth.psn != self.expected || self.gap != Gap::None {",
        "if packet.header.bth.psn != self.expected {",
    ),
    Mutant(
        "lets-a-write-go-on",
        f"{RESPONDER}/execute.rs",
        ".min(fitting(u64::from(left.saturating_sub(1))));",
        ".min(fitting(u64::from(*left)));",
    ),
    Mutant(
        "divides-writes-that-may-be-refused",
        f"{REQUESTER}/sending.rs",
        "&& self.targets.covers(rkey, va, wqe.length)",
        "",
    ),
)


def main(names: list[str]) -> int:
    """Test the mutants of these names, or all; the exit status is whether each was caught."""
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    unknown = set(names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        print(f"no such mutant: {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in MUTANTS)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        work = Path(folder)
        copy_crates(work)
        if not passes(work):
            print("the tests fail without any mutant: mend that first")
            return 1
        survivors = [mutant.name for mutant in chosen if survives(work, mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants caught")
    if survivors:
        print(f"not caught: {', '.join(survivors)}")
    return 1 if survivors else 0


def copy_crates(work: Path) -> None:
    """A workspace of these crates alone."""
    for crate in CRATES:
        shutil.copytree(NIC / crate, work / crate)
    shutil.copy(NIC / "Cargo.lock", work)
    lines = (NIC / "Cargo.toml").read_text(encoding="utf-8").splitlines()
    members = ", ".join(f'"{crate}"' for crate in CRATES)
    lines = [f"members = [{members}]" if line.startswith("members") else line for line in lines]
    others = [f"urxe-{path.name}" for path in NIC.iterdir() if path.is_dir() and path.name not in CRATES]
    kept = [line for line in lines if not line.startswith(tuple(f"{other} =" for other in others))]
    kept = [line for line in kept if not line.startswith("[profile.dev.package.urxe-")]
    (work / "Cargo.toml").write_text("\n".join(without_orphans(kept)) + "\n", encoding="utf-8")


def without_orphans(lines: list[str]) -> list[str]:
    """Without the profiles, and with one that optimises: thousands of seeds run."""
    end = next(at for at, line in enumerate(lines) if line.startswith("[profile."))
    return [*lines[:end], "[profile.dev]", "opt-level = 1", "debug = false"]


def passes(work: Path) -> bool:
    """Whether the tests pass with the sources as they are."""
    environment = os.environ | {"URXE_SIM_SEEDS": str(SEEDS), "RUST_BACKTRACE": "0"}
    environment["CARGO_TARGET_DIR"] = str(work / "target")
    command = ["cargo", "test", "--quiet", "--offline", "-p", "urxe-sim", "-p", "urxe-inputs", "--lib", "--tests"]
    try:
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    if b"could not compile" in done.stderr:
        sys.exit(f"does not compile:\n{done.stderr.decode()}")
    return done.returncode == 0


def survives(work: Path, mutant: Mutant) -> bool:
    """Whether the tests pass in spite of the mutant."""
    path = work / mutant.path
    source = path.read_text(encoding="utf-8")
    if source.count(mutant.old) != 1:
        sys.exit(f"{mutant.name}: {mutant.path} has {source.count(mutant.old)} times, not once:\n{mutant.old}")
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    survived = passes(work)
    path.write_text(source, encoding="utf-8")
    print(f"{'NOT CAUGHT' if survived else 'caught':10}  {mutant.name}", flush=True)
    return survived


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

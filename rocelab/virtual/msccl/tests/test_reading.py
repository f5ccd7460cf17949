"""What a file of MSCCL may have in it, and what is said of one that has something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocelab.virtual.msccl import reading
from rocelab.virtual.msccl.algorithm import AlgorithmError
from rocelab.virtual.msccl.reading import read

RING = Path(__file__).with_name("ring.xml").read_text(encoding="utf-8")
STEP = '<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>'


def test_a_file_has_gpus_and_thread_blocks_and_steps() -> None:
    ring = read(RING.encode())
    assert (ring.collective, ring.chunks, len(ring.gpus)) == ("allreduce", 4, 4)
    block = ring.gpus[2][0]
    assert (block.send, block.recv, block.channel) == (3, 1, 0)
    assert [step.type for step in block.steps] == ["s", "rrs", "rrs", "rrcs", "rcs", "rcs", "r"]
    assert {step.count for step in block.steps} == {1}


def test_a_step_waits_for_another_thread_block() -> None:
    two = RING.replace(
        "    </tb>\n  </gpu>",
        f'    </tb>\n    <tb id="1" send="2" recv="-1" chan="0">{STEP}</tb>\n  </gpu>'.replace(
            'depid="-1" deps="-1"', 'depid="0" deps="6"'
        ),
        1,
    ).replace('hasdep="0"/>\n    </tb>', 'hasdep="1"/>\n    </tb>', 1)
    step = read(two.encode()).gpus[0][1].steps[0]
    assert step.waits_for == (0, 6)
    assert read(two.encode()).gpus[0][0].steps[6].is_waited_for


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("</algo>", "", "line 48: this is not XML: no element found"),
        ("</tb>", "</tv>", "line 12: this is not XML: mismatched tag"),
        ("<algo", "<graph", "line 2: <graph> is not allowed as the outermost element; allowed: <algo>"),
        ("<gpu", "<node", "line 3: <node> is not allowed in <algo>; allowed: <gpu>"),
        ("<step", "<op", "line 5: gpu 0, tb 0: <op> is not allowed in <tb>; allowed: <step>"),
        ('ngpus="4"', 'ngpus="5"', "line 47: gpu 4 is missing; they are numbered from 0 without a gap"),
        ('ngpus="4"', "", "line 2: ngpus is missing in <algo>"),
        ('ngpus="4"', 'ngpus="four"', "line 2: ngpus is 'four'; allowed: 2 to 4096"),
        ('proto="Simple"', 'proto="simple"', "line 2: proto is 'simple'; allowed: Simple, LL, LL128"),
        ('nchunksperloop="4"', 'nchunksperloop="0"', "nchunksperloop is '0'; allowed: 1 or more"),
        ('<gpu id="1"', '<gpu id="0"', "line 14: gpu 0: this GPU is there twice"),
        ('<tb id="0"', '<tb id="1"', "gpu 0: tb 0 is missing"),
        ('send="1"', 'send="0"', "gpu 0, tb 0: a GPU neither sends to itself nor receives from itself"),
        ('send="1"', 'send="4"', "gpu 0, tb 0: send is '4'; allowed: -1 to 3"),
        ('send="1"', 'send="-1"', "gpu 0, tb 0, step 0: s sends, and the thread block has no GPU to send to"),
        ('recv="3"', 'recv="-1"', "gpu 0, tb 0, step 1: rrs receives, and the thread block has no GPU to receive"),
        ('chan="0"', 'chan="1"', "gpu 0, tb 0: chan is '1'; allowed: 0 to 0"),
        (' s="1"', ' s="2"', "line 6: gpu 0, tb 0, step 1: s is 2; allowed: 1, for steps are numbered"),
        ('type="rrs"', 'type="rsr"', "step 1: type is 'rsr'; allowed: s, r, rcs, rrs, rrc, rrcs, cpy, re, nop"),
        ('srcbuf="i"', 'srcbuf="x"', "step 0: srcbuf is 'x'; allowed: i, o, s"),
        ('cnt="1"', 'cnt="0"', "step 0: cnt is '0'; allowed: 1 or more"),
        ('cnt="1"', 'cnt="5"', "srcoff 0 and cnt 5 end after chunk 3 of buffer i, of which the GPU has 4 (i_chunks)"),
        ('cnt="1"', "", "step 0: cnt is missing in <step>"),
        ('hasdep="0"', 'hasdep="2"', "step 0: hasdep is '2'; allowed: 0 to 1"),
        ('depid="-1"', 'depid="0"', "step 0: depid is 0 and deps is -1; allowed: a thread block and a step of it"),
        (
            'depid="-1" deps="-1"',
            'depid="1" deps="0"',
            "depid is 1, and the GPU has no such thread block; allowed: 0 to 0",
        ),
        ('depid="-1" deps="-1"', 'depid="0" deps="7"', "deps is 7, and tb 0 has no such step; it has 7"),
        ('depid="-1" deps="-1"', 'depid="0" deps="3"', "tb 0, step 3, which has hasdep 0 and tells nothing of its end"),
        ("</tb>", "and then</tb>", "gpu 0, tb 0: text is not allowed: 'and then'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(old: str, new: str, said: str) -> None:
    with pytest.raises(AlgorithmError, match=re.escape(said)):
        read(RING.replace(old, new, 1).encode())


def test_a_file_of_more_steps_than_there_is_memory_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_STEPS_MAX", 8)
    with pytest.raises(AlgorithmError, match=r"gpu 1, tb 0, step 1: the file has more than 8 steps"):
        read(RING.encode())


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE algo [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        '<!DOCTYPE algo [<!ENTITY secret SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE algo SYSTEM "http://localhost/algo.dtd">',
    ],
)
def test_entities_are_refused(declared: str) -> None:
    with pytest.raises(AlgorithmError, match=r"line 1: a document type .* may declare entities: take DOCTYPE out"):
        read(f"{declared}\n{RING}".encode())


@pytest.mark.parametrize(
    "text", [b"", b"\x00", b"<algo", b"\xff\xfe<", b'<?xml version="1.0" encoding="x-none"?><algo/>']
)
def test_what_is_no_xml_is_refused(text: bytes) -> None:
    with pytest.raises(AlgorithmError, match="this is not XML"):
        read(text)

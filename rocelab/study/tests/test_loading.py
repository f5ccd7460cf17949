"""What a person is told about a study file that is wrong, and that one that is right is taken as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.study import catalogue
from rocelab.study.loading import load, parse
from rocelab.study.positions import line_of
from rocelab.study.problems import StudyError
from rocelab.study.tests.small import TEXT
from rocelab.tools.base import Test

CONTROLS = ("cubic", "default")


def line_with(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if part in line)


@pytest.mark.parametrize(
    ("good", "bad", "key", "says"),
    [
        (
            "rate_mbps = 100",
            "rate_mpbs = 100",
            "link[2].rate_mpbs",
            "did you mean 'rate_mbps'? Allowed: ecn_percent, gso_max_bytes, id,",
        ),
        ('title = "A', 'titel = "A', "titel", "did you mean 'title'?"),
        ("repetitions = 2", 'repetitions = "2"', "repetitions", '"2" is not allowed; it should be a valid integer'),
        ("repetitions = 2", "repetitions = 0", "repetitions", "greater than or equal to 1"),
        ("repetitions = 2", "repetitions = true", "repetitions", "true is not allowed"),
        ('kind = "bridge"', 'kind = "brigde"', "link[2].kind", 'allowed: "direct", "bridge" or "two-level"'),
        ('kind = "bridge"', 'kind = "two-level"', "link[2].kind", "a two-level link needs nodes_per_switch"),
        ('id = "slow"', 'id = "Slow link"', "link[2].id", "only a to z"),
        ('id = "slow"', 'id =  "direct"', "link[2].id", "there is another link 'direct'"),
        ("{ from = 1, to = 4 }", "{ from = 1, too = 4 }", "test[1].sizes_bytes.too", "did you mean 'to'?"),
        ("{ from = 1, to = 4 }", "{ from = 8, to = 4 }", "test[1].sizes_bytes", "the range is empty"),
        ("{ from = 1, to = 4 }", "[0]", "test[1].sizes_bytes[1]", "greater than or equal to 1"),
        ("{ from = 1, to = 4 }", "7", "test[1].sizes_bytes", "7 is not allowed"),
        ('links = ["direct"]', 'links = ["dircet"]', "test[2].links", "did you mean 'direct'?"),
        ('soft-roce = ["send"]', 'softroce = ["send"]', "test[1].variants.softroce", "did you mean 'soft-roce'?"),
        ('soft-roce = ["send"]', 'soft-roce = ["sned"]', "test[1].variants.soft-roce", "did you mean 'send'?"),
        ('soft-roce = ["send"]', 'soft-roce = ["send", "send"]', "test[1].variants.soft-roce", "measured twice"),
        ('soft-roce = ["send"]', "soft-roce = []", "test[1].variants.soft-roce", "this is empty; it needs"),
        (
            'soft-roce = ["send"]',
            'soft-roce = ["send@cubic"]',
            "test[1].variants.soft-roce",
            "send@cubic: only tcp and soft-iwarp have a congestion control",
        ),
        ('soft-roce = ["send"]', 'soft-iwarp = ["send@"]', "test[1].variants.soft-iwarp", "'@' is followed by a"),
        ('soft-roce = ["send"]', 'soft-iwarp = ["sned@cubic"]', "test[1].variants.soft-iwarp", "did you mean 'send'?"),
        (
            'soft-roce = ["send"]',
            'soft-iwarp = ["send", "send@cubic"]',
            "test[1].variants.soft-iwarp",
            "measured twice",
        ),
        ('claims = ["S1"]', 'claims = ["S9"]', "claims[1]", "unknown claim 'S9'. Allowed: S1, S2"),
        (
            'test = "bandwidth"',
            'test = "bandwith"',
            "test[2].test",
            'allowed: "latency", "bandwidth", "bidirectional-bandwidth" or',
        ),
    ],
)
def test_a_mistake_names_its_key_its_line_and_what_is_allowed(good: str, bad: str, key: str, says: str) -> None:
    text = TEXT.replace(good, bad)
    with pytest.raises(StudyError) as caught:
        parse(text, "my.toml", known_claims={"S1", "S2"})
    problems = {problem.key: problem for problem in caught.value.problems}
    assert key in problems
    assert says in problems[key].text
    assert problems[key].line == line_with(text, bad)
    assert f"my.toml:{problems[key].line}: {key}: " in str(caught.value)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = TEXT.replace("repetitions = 2", "repetitions = -2").replace("rate_mbps", "rate").replace('id = "small"', "")
    with pytest.raises(StudyError) as caught:
        parse(text, "my.toml")
    assert [problem.key for problem in caught.value.problems] == ["id", "repetitions", "link[2].rate"]


def test_a_file_that_is_not_toml_names_the_line() -> None:
    with pytest.raises(StudyError, match=r"my\.toml:3: not valid TOML"):
        parse('schema = 1\nid = "x"\ntitle = "unfinished\n', "my.toml")
    with pytest.raises(StudyError, match="not valid TOML"):
        parse("schema = 1\n[link", "my.toml")


def test_a_size_that_the_tool_does_not_take() -> None:
    text = TEXT.replace("[1024]", "[2097152]").replace('tcp = ["blocking"]\nsoft', 'tcp = ["blocking-iperf3"]\nsoft')
    with pytest.raises(StudyError, match="iperf3, which takes at most 1048576 bytes, not 2097152"):
        parse(text, "my.toml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"nothing\.toml: No such file"):
        load(tmp_path / "nothing.toml")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'title = "\xe9"')
    with pytest.raises(StudyError, match="not UTF-8"):
        load(latin)


def test_a_missing_study_lists_those_there_are() -> None:
    with pytest.raises(StudyError, match=r"no such study; there are: .*quick"):
        catalogue.resolve("quikc")


@pytest.mark.parametrize("name", catalogue.files())
def test_every_study_of_ours_is_in_order(name: str) -> None:
    path = catalogue.files()[name]
    if 'kind = "virtual"' in path.read_text(encoding="utf-8"):
        return  # rocelab/virtual/tests has those.
    study, _ = load(path)
    assert study.id == name


def test_the_quick_study_is_what_it_promises() -> None:
    study, _ = load(catalogue.files()["quick"])
    assert (study.repetitions, study.budget_minutes) == (3, 6)
    assert study.tcp.congestion_control == ["cubic", "default"]
    assert [(link.id, link.kind, link.rate_mbps) for link in study.link] == [
        ("direct", "direct", None),
        ("ethernet-1g", "bridge", 1000),
    ]
    measured: dict[tuple[str, ...], set[int]] = {}
    for test in study.test:
        for link in study.links_of(test):
            for name, variants in study.variants_of(test).items():
                for variant in variants:
                    place = (link.id, *test.every_test, f"{name} {variant}")
                    measured.setdefault(place, set()).update(test.every_size_bytes())
    everyone = ["soft-roce send", *(f"tcp {way}@{each}" for way in ("blocking", "busy-poll") for each in CONTROLS)]
    tests: tuple[Test, ...] = ("latency", "bandwidth", "bidirectional-bandwidth")
    for test_name in tests:
        # The ranges of the claims about Ethernet at 1 Gbps.
        largest = 8192 if test_name == "bidirectional-bandwidth" else 32768
        powers = {1 << bit for bit in range(largest.bit_length())}
        for contestant in everyone:
            assert powers <= measured["ethernet-1g", test_name, contestant]
            assert {64, 4096, 65536, 1 << 20} <= measured["direct", test_name, contestant]


def test_lines_of_keys_in_forms_that_toml_allows() -> None:
    text = '# head\na.b = 1\n\n[t."x y"]\nc = [\n  1,\n  2,\n]\n[[l]]\n[[l]]\nd = { e = 1 }\n'
    assert line_of(text, ("a", "b")) == 2
    assert line_of(text, ("t", "x y", "c", 1)) == 5
    assert line_of(text, ("l", 1)) == 10
    assert line_of(text, ("l", 1, "d", "e")) == 11
    assert line_of(text, ("nothing",)) == 1
    assert line_of("not toml [", ("a",)) == 1

"""What a machine cannot measure is left out of a study, and said."""

from __future__ import annotations

from rocelab import peers
from rocelab.study.availability import measurable
from rocelab.study.loading import parse
from rocelab.study.tests import small

TEXT = small.TEXT.replace('["blocking", "busy-poll"]', '["blocking", "kernel-poll@cubic", "kernel-prefer@cubic"]')


def refused(reception: peers.Reception) -> str | None:
    return "SO_PREFER_BUSY_POLL: Operation not permitted" if reception == "napi-deferred" else None


def test_a_study_of_which_all_can_be_measured_stays_as_it_is() -> None:
    study = parse(TEXT, "small.toml")
    assert measurable(study, lambda _: None) == (study, ())


def test_only_tcps_that_cannot_be_measured_are_left_out_and_why() -> None:
    study, said = measurable(parse(TEXT, "small.toml"), refused)
    assert study.test[0].variants == {"tcp": ["blocking", "kernel-poll@cubic"], "soft-roce": ["send"]}
    who, reason = "TCP blocking, kernel prefers to poll (kernel-prefer)", "SO_PREFER_BUSY_POLL: Operation not permitted"
    assert said == (f"{who} is not measured here: {reason}.",)


def test_a_test_that_nothing_is_left_of_goes_too() -> None:
    text = TEXT.replace('tcp = ["blocking"]\nsoft-roce = ["write"]', 'tcp = ["busy-poll-kernel-prefer@cubic"]')
    before, (after, _) = parse(text, "small.toml"), measurable(parse(text, "small.toml"), refused)
    assert [test.every_test for test in before.test] == [("latency",), ("bandwidth",), ("cpu-use",)]
    assert [test.every_test for test in after.test] == [("latency",), ("cpu-use",)]

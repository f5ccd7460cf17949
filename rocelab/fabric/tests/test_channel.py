"""Messages between rocelab and the keepers, at the edges."""

from __future__ import annotations

from rocelab.fabric.keeper import channel


def test_last_words_of_a_side_that_closed_unread_are_not_lost() -> None:
    ours, theirs = channel.pair()
    with ours:
        channel.send(ours, {"op": "signal", "number": 18})
        channel.send(theirs, {"exit_status": 0})
        theirs.close()
        assert channel.receive(ours) == {"exit_status": 0}
        assert channel.receive(ours) is None

"""Tables of rows that a script measured."""

from __future__ import annotations

from rocelab.report import documents

KEPT = """\
# 2026-01-01, commit 1234567; a machine
what,condition,metric,unit,median,low,high,repetitions
"SEND, IPv4",64 B,latency,us,3.234,3,10.5,5
SEND,1 pair,total,Mbps,12346,1,20000,5
SEND,1 pair,least of a pair,Mbps,12346,1,20000,5
TCP,1 pair,total,Mbps,100,1,20000,5
TCP,1 pair,least of a pair,Mbps,100,1,20000,5
SEND,2 pairs,total,Mbps,300,200,400,4
SEND,2 pairs,least of a pair,Mbps,100,90,110,4
"""


def test_rows_of_the_same_metrics_are_a_table_with_their_columns() -> None:
    alone, together = documents.rows(KEPT).split("\n\n")[1:]
    assert alone == "|  |  | latency, us |\n| --- | --- | --- |\n| SEND, IPv4 | 64 B | 3.23 (3 to 10.5) |"
    assert together == (
        "|  |  | total, Mbps | least of a pair, Mbps |\n"
        "| --- | --- | --- | --- |\n"
        "| SEND | 1 pair | 12,346 (1 to 20,000) | 12,346 (1 to 20,000) |\n"
        "| SEND | 2 pairs | 300 (200 to 400, 1 failed) | 100 (90 to 110, 1 failed) |\n"
        "| TCP | 1 pair | 100 (1 to 20,000) | 100 (1 to 20,000) |"
    )


def test_rows_say_where_and_how_often_they_were_measured() -> None:
    above = documents.rows(KEPT).split("\n\n")[0]
    assert above == "2026-01-01, commit 1234567; a machine. Medians of 5 repetitions, with the least and the most."


EXPERIMENTS = """\
mechanism,question,workload,value,low,high,unit,before,n,date,commit,machine,decision
runs,Do runs gain?,stream,1.2,,,bandwidth ratio,,5,2026-11-21,58944df,2 cores,kept
new-one,Is it new?,stream,1,,,us,,5,2026-11-21,58944df,2 cores,fact
runs,Do they still?,stream,1.3,,,bandwidth ratio,,5,2026-11-22,b86ffb8,2 cores,kept
"""


def test_rows_of_a_mechanism_stand_together_on_its_page_and_those_of_no_page_apart() -> None:
    page = documents.experiments(EXPERIMENTS, "packets")
    assert page.count("## runs\n") == 1
    assert page.index("Do runs gain?") < page.index("Do they still?")
    assert "Is it new?" not in page
    rest = documents.experiments(EXPERIMENTS)
    assert "## new-one" in rest
    assert "runs" not in rest


def test_a_mechanism_is_of_one_page() -> None:
    everywhere = [name for names in documents.EXPERIMENTS.values() for name in names]
    assert len(everywhere) == len(set(everywhere))

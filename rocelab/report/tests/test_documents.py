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


FLOOR = """\
# 2026-01-01, commit 1234567; a machine
what,condition,metric,unit,median,low,high,repetitions
WRITE beside a bare loop,64 KiB,bare loop,Mbps,32000,1,40000,10
WRITE beside a bare loop,64 KiB,WRITE,Mbps,24000,1,30000,10
WRITE beside a bare loop,64 KiB,WRITE / bare loop,times,0.75,0.1,0.8,10
WRITE beside a bare loop,1 MiB,bare loop,Mbps,30000,1,40000,10
WRITE beside a bare loop,1 MiB,WRITE,Mbps,24000,1,30000,10
WRITE beside a bare loop,1 MiB,WRITE / bare loop,times,0.8,0.1,0.8,10
"""
BOTH_WAYS = """\
"WRITE beside a bare loop, both ways",64 KiB,bare loop,Mbps,40000,1,50000,10
"WRITE beside a bare loop, both ways",64 KiB,WRITE,Mbps,20000,1,30000,10
"WRITE beside a bare loop, both ways",64 KiB,WRITE / bare loop,times,0.5,0.1,0.6,10
"WRITE beside a bare loop, both ways",1 MiB,bare loop,Mbps,45000,1,50000,10
"WRITE beside a bare loop, both ways",1 MiB,WRITE,Mbps,18000,1,30000,10
"WRITE beside a bare loop, both ways",1 MiB,WRITE / bare loop,times,0.4,0.1,0.6,10
"""


def test_the_floor_both_ways_is_held_against_write_and_against_one_way() -> None:
    assert documents.both_ways(FLOOR + BOTH_WAYS) == (
        "**Bandwidth both ways** (64 KiB, 1 MiB): WRITE has 0.4 to 0.5 of the bare loop both ways, "
        "which has 1.2 to 1.5 times the bandwidth of the bare loop one way."
    )
    streams = documents.rows(FLOOR + BOTH_WAYS).split("\n\n")[1]
    assert "| WRITE beside a bare loop, both ways | 64 KiB | 40,000 (1 to 50,000) |" in streams


def test_what_was_not_measured_both_ways_has_no_number() -> None:
    assert documents.both_ways(FLOOR) == "**Bandwidth both ways:** the bare loop was not measured both ways."


SERIES = """\
part,source,series,grade,metric,sizes,within_10_percent,within_20_percent,plain_error,median_error,worst_error,worst_bytes
held out,one,one-bw,B,bandwidth,10,5,8,0.040,0.050,+0.301,64
held out,one,one-other-bw,B,bandwidth,10,5,8,0.040,0.050,-0.450,64
held out,two,two-bw,A,bandwidth,10,5,8,0.040,0.070,+0.300,64
"""


def test_the_bounds_say_how_many_series_miss_the_goal_at_a_size() -> None:
    head, _, row = documents.bounds(SERIES).split("\n")
    assert head.endswith("| worst error of a size | series above 30 % at a size |")
    assert row == "| held out | bandwidth | 2 | 3 | 6% | 4% | 50% | 80% | 45% | 2 of 3 |"


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

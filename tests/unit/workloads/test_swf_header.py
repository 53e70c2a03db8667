from __future__ import annotations

from workloads.swf import SwfComment, SwfHeader

TEXT = b"""; Version: 2.2
; Computer: Bull
;  Installation: Gaia
; Acknowledge: Somebody
; Information: http://one
;              http://two
; UnixStartTime: 1400749079
; TimeZoneString: Europe/Luxembourg
; MaxNodes: 151 (100,51)
; MaxProcs: 2004
; MaxQueues: 2
; Queue: 0 - Interactive jobs
; Queue: 1  batch
; Partition: 1 thin
; AllowOveruse: False
; Note: first note
;\tgoes on
; Note: second
; 1| 2| columns
; Odd\xff\x80 bytes
"""


def header(text: bytes = TEXT) -> SwfHeader:
    return SwfHeader(tuple(SwfComment(line) for line in text.splitlines(keepends=True)))


def test_fields_are_typed() -> None:
    head = header()
    assert head.version == "2.2"
    assert (head.computer, head.installation, head.acknowledge) == ("Bull", "Gaia", ("Somebody",))
    assert head.information == ("http://one http://two",)
    assert (head.max_nodes, head.max_procs, head.max_queues) == (151, 2004, 2)
    assert head.queues == {0: "Interactive jobs", 1: "batch"}
    assert head.partitions == {1: "thin"}
    assert head.notes == ("first note goes on", "second")
    assert head.allow_overuse is False
    assert head.unix_start_time_s == 1400749079
    assert head.time_zone is not None
    assert header(b"; TimeZone: -3600\n").time_zone_offset_s == -3600


def test_absent_and_ill_typed_fields_are_none() -> None:
    head = header(b"; MaxProcs: many\n; TimeZoneString: Moon/Sea\n; UnixStartTime: 0\n")
    assert head.max_procs is None
    assert head.max_nodes is None
    assert head.time_zone is None
    assert head.unix_start_time_s == 0
    assert head.time_zone_offset_s is None
    assert head.allow_overuse is None
    assert head.notes == ()


def test_changing_a_field_replaces_its_line_in_place() -> None:
    changed = header().with_field("MaxProcs", 8)
    assert changed.max_procs == 8
    assert len(changed.comments) == len(header().comments)
    assert changed.comments[9].raw == b"; MaxProcs: 8\n"


def test_new_field_and_note_go_to_the_end_of_the_head() -> None:
    first = SwfComment(b"; Version: 2.2\n")
    tail = SwfComment(b"; end\n", after_jobs=4)
    head = SwfHeader((first, tail)).with_note("made\nof words").with_field("MaxJobs", 4)
    assert [comment.text for comment in head.comments] == [
        "; Version: 2.2",
        "; Note: made of words",
        "; MaxJobs: 4",
        "; end",
    ]

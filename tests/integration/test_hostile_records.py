"""Fuzzed words of users against a real slurmctld: jobs, cores and ends as Slurm has them, no other ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deploy.local import LocalCluster, Shape
from foundation.slurm import CommandSlurm, SlurmJob, SlurmJobState
from foundation.slurm.hosts import NodeBook
from foundation.slurm.job_sources import TextSource
from tests.fixtures.looks import until
from tests.fixtures.tier import choose
from tests.integration.conftest import end_cluster, quick_to_kill
from tests.integration.hostile import ATTACKS, Hostile, Words, by_id, filled, plain_text, read_as

pytestmark = [pytest.mark.slurm, pytest.mark.parallel, pytest.mark.timeout(choose(900, 900, 3600))]

CASES = choose(25, 200, 10_000)
RUNNING_CASES = choose(2, 4, 200)
BATCH = 20
MOST_BYTES = 1024  # what slurmctld takes of a name, comment, account (job_mgr.c, _validate_job_desc)
MOST_PATH_BYTES = 4000

PIECES = (
    *b'\n|\r|\r\n|\t|\x0b|\x0c|\x1b[31m|\x7f|"|\\|\\u0000|\\"}|}]}|,|{|[|:|%|%s|%j|%A|\'|`|$|;|&|<|>|*|?|~|#|=|@'.split(
        b"|"
    ),
    b"|",
    b" ",
    b"  ",
    b"(null)",
    b"N/A",
    "\u2028".encode(),
    "\u2029".encode(),
    "\x85".encode(),
    b"\x1c\x1d\x1e",
    "\u202e".encode(),
    "\U0001f4a9".encode(),
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"JobId=",
    b"JobId=1 JobName=",
    b" UserId=root(0) GroupId=root(0) ",
    b" JobState=RUNNING ",
    b" Nodes=",
    b"n1",
    b"n[1-2]",
    b"n[0-99999999]",
    b"@all",
    b" CPU_IDs=",
    b" CPU_IDs=0 Mem=1 ",
    b"0-3000000",
    b" EndTime=2030-01-01T00:00:00 ",
    b" TimeLimit=UNLIMITED ",
    b" Command=",
    b" Comment=",
    b"gangd=off",
    b"gangd-weight=1000",
    b'"job_id": 1',
    b'"job_resources": {"allocated_nodes": []}',
    b'"errors": ["x"]',
    b"A" * 900,
    b"\x01" * 700,
    b"\\" * 500,
)
TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
PIECE = st.one_of(
    st.sampled_from(PIECES),
    st.text(TEXT, max_size=12).map(str.encode),
    st.binary(max_size=8).map(lambda raw: raw.replace(b"\0", b"")),
)
TEXTS = st.lists(PIECE, max_size=5).map(b"".join)
WORDS = st.builds(
    Words,
    name=TEXTS.map(lambda text: text[:MOST_BYTES] or b"x"),
    comment=TEXTS.map(lambda text: text[:MOST_BYTES]),
    directory=TEXTS.map(lambda text: b"/" + text[:MOST_PATH_BYTES]),
    account=TEXTS.map(lambda text: text[:MOST_BYTES]),
    output=TEXTS.map(lambda text: b"/tmp/" + text[:MOST_PATH_BYTES]),
    wckey=TEXTS.map(lambda text: text[:MOST_BYTES]),
)


@dataclass
class Campaign:
    """A cluster with jobs that do nothing wrong, and what is known of all jobs that were submitted."""

    slurm: Hostile
    client: CommandSlurm
    text: TextSource
    book: NodeBook
    calm: dict[int, SlurmJob]
    submitted: set[int] = field(default_factory=set)
    judged: int = 0

    def judge(self, written: dict[int, Words], state: SlurmJobState) -> None:
        """Hold what both sources say against what was submitted, and against numbers that squeue prints."""
        before = self.slurm.states()
        from_json = by_id(self.client.jobs())
        snapshot = self.text.read(self.book)
        after = self.slurm.states()
        from_text = {job.job_id: job for job in snapshot.jobs}
        assert {one.job_id for one in snapshot.unreadable} <= self.submitted
        if state is SlurmJobState.PENDING:
            assert snapshot.unreadable == ()
        for jobs in (from_json, from_text):
            assert jobs.keys() <= self.submitted | self.calm.keys()
            assert before.keys() & after.keys() <= jobs.keys() | {one.job_id for one in snapshot.unreadable}
            for number, job in self.calm.items():
                # of one's own jobs a line in another's name can take a name away, without JSON
                assert replace(jobs[number], name=None) == replace(job, name=None)
        for number, words in written.items():
            job = from_json[number]
            assert (job.name, job.comment) == (read_as(words.name), read_as(words.comment))
            assert job.state is state
            if state is SlurmJobState.PENDING:
                assert (job.cores, job.start_time, job.end_time, job.time_limit_s) == ((), None, None, 7 * 60)
                other = from_text[number]
                assert (other.state, other.cores, other.end_time) == (job.state, (), None)
            else:
                [held] = job.cores
                assert len(held.cores) == 1
                assert job.start_time is not None
                assert job.end_time == job.start_time + 7 * 60
                if number in from_text:
                    assert from_text[number].cores == job.cores
        self.judged += len(written)


@pytest.fixture(scope="module")
def campaign() -> Iterator[Campaign]:
    """Two nodes of two cores, M=2, with a job across both, one on a node, and an array that waits."""
    with tempfile.TemporaryDirectory(prefix="osub-fuzz-") as folder:
        cluster = LocalCluster(Path(folder, "c"))
        settings = ("MinJobAge=2", "MaxJobCount=50000")
        shape = Shape(nodes=2, cores=2, virtual=True, multiplicity=2, settings=settings)
        cluster.up(quick_to_kill(shape))
        try:
            yield begin(Hostile(cluster))
        finally:
            end_cluster(cluster)


def begin(slurm: Hostile) -> Campaign:
    options = (("-N2", "-n2", "-t", "60"), ("-N1", "-n1"), ("--hold", "--array=1-3"))
    assert None not in [slurm.submit(Words(), *each) for each in options]
    until(lambda: list(slurm.states().values()).count("R") == 2, 60, "two jobs run")
    client = slurm.cluster.client()
    text, book = plain_text(slurm)
    return Campaign(slurm, client, text, book, by_id(client.jobs()))


def test_words_of_users_change_nothing_but_themselves(campaign: Campaign) -> None:
    slurm, judged = campaign.slurm, campaign.judged

    @settings(
        max_examples=-(-CASES // BATCH),
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(WORDS, min_size=BATCH, max_size=BATCH))
    def fuzz(batch: list[Words]) -> None:
        written: dict[int, Words] = {}
        for words in batch:
            number = slurm.submit(words, "--hold", "-t", "7")
            if number is not None:
                written[number] = words
        campaign.submitted |= written.keys()
        campaign.judge(written, SlurmJobState.PENDING)
        slurm.cancel(written)

    fuzz()
    assert campaign.judged - judged >= CASES // 2, "slurmctld refused most"


def test_jobs_that_run_have_their_own_cores_and_ends(campaign: Campaign, tmp_path: Path) -> None:
    slurm = campaign.slurm
    victim, calm = next(iter(campaign.calm.items()))

    def states_of(jobs: Iterable[int]) -> set[str | None]:
        known = slurm.states()
        return {known.get(job) for job in jobs}

    @settings(
        max_examples=RUNNING_CASES,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.tuples(WORDS, st.sampled_from(ATTACKS)), min_size=2, max_size=2))
    def fuzz(pair: list[tuple[Words, str]]) -> None:
        written: dict[int, Words] = {}
        for words, attack in pair:
            forged = filled(attack, proof=tmp_path / "proof", node=calm.nodes[0], victim=victim)
            both = replace(
                words, name=(words.name + forged)[:MOST_BYTES], output=b"/dev/null", directory=b"/"
            )
            number = slurm.submit(both, "-N1", "-n1", "-t", "7")
            assert number is not None
            written[number] = both
        campaign.submitted |= written.keys()
        until(lambda: states_of(written) == {"R"}, 60, "they run")
        campaign.judge(written, SlurmJobState.RUNNING)
        slurm.cancel(written)
        until(lambda: states_of(written) <= {"CA", None}, 60, "they end")

    fuzz()
    assert not (tmp_path / "proof").exists()

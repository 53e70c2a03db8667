from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.error import URLError

import pytest

from foundation.errors import HostError, InputError, OutputError, UsageError
from osub.cli.main import run
from tests.fixtures.cli import Cli
from workloads.importers.fetch_log import (
    LOGS,
    ArchiveLog,
    Body,
    cache_folder,
    fetch_log,
    find_log,
    open_address,
)

TEXT = b"; MaxRecords: 2\n; Acknowledge: the lab\n" + b"".join(
    b"%d 0 1 10 1 -1 -1 1 20 -1 1 1 1 -1 1 -1 -1 -1\n" % number for number in (1, 2)
)
PACKED = gzip.compress(TEXT, mtime=0)  # the same in every process: it is part of the names of tests
KNOWN = ArchiveLog("l_lab", "Lab-1", 2, hashlib.sha256(TEXT).hexdigest())
UNKNOWN = ArchiveLog("l_lab", "Lab-2")


class Answer:
    def __init__(self, data: bytes, announced: int | None = None) -> None:
        self._stream = BytesIO(data)
        self.headers: Mapping[str, str] = {
            "Content-Length": str(len(data) if announced is None else announced)
        }

    def read(self, size: int, /) -> bytes:
        return self._stream.read(size)


class Web:
    """Answers with ``data`` at every address and remembers what was asked for."""

    def __init__(self, data: bytes, announced: int | None = None) -> None:
        self.data, self.announced = data, announced
        self.asked: list[str] = []

    @contextmanager
    def open(self, address: str) -> Iterator[Body]:
        self.asked.append(address)
        yield Answer(self.data, self.announced)


@contextmanager
def offline(_address: str) -> Iterator[Body]:
    raise URLError("no route to host")
    yield


def test_log_is_downloaded_once_and_checked(tmp_path: Path) -> None:
    web = Web(PACKED)
    first = fetch_log(KNOWN, tmp_path / "cache", opener=web.open)
    assert web.asked == ["https://www.cs.huji.ac.il/labs/parallel/workload/l_lab/Lab-1.swf.gz"]
    assert (first.downloaded, first.jobs, first.checked) == (True, 2, "sha256")
    assert first.acknowledge == ("the lab",)
    again = fetch_log(KNOWN, tmp_path / "cache", opener=offline)
    assert (again.downloaded, again.path) == (False, first.path)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["Lab-1.swf.gz"]


def test_other_packing_of_the_same_file_is_the_same_log(tmp_path: Path) -> None:
    assert fetch_log(KNOWN, tmp_path, opener=Web(gzip.compress(TEXT, 1)).open).checked == "sha256"


def test_offline_it_says_what_to_download_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(HostError) as raised:
        fetch_log(KNOWN, tmp_path, opener=offline)
    message = str(raised.value)
    for part in ("no route to host", "Lab-1.swf.gz", "/l_lab/index.html", str(tmp_path / "Lab-1.swf.gz")):
        assert part in message
    assert list(tmp_path.iterdir()) == []


def test_file_put_there_by_hand_is_checked(tmp_path: Path) -> None:
    (tmp_path / KNOWN.file).write_bytes(gzip.compress(TEXT + b"; more\n"))
    with pytest.raises(InputError, match=r"is not the Lab-1 that is known.*delete it"):
        fetch_log(KNOWN, tmp_path, opener=offline)


@pytest.mark.parametrize(
    ("data", "announced", "error", "words"),
    [
        (PACKED[:-9], None, InputError, "truncated"),
        (PACKED[:50], len(PACKED), HostError, "ended after 50 of"),
        (b"<html>log in</html>", None, InputError, "no readable job"),
        (b"", None, InputError, "is empty"),
    ],
)
def test_damaged_downloads_are_reported_and_not_kept(
    data: bytes, announced: int | None, error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        fetch_log(UNKNOWN, tmp_path, opener=Web(data, announced).open)
    assert list(tmp_path.iterdir()) == []


def test_without_a_checksum_it_says_what_was_compared(tmp_path: Path) -> None:
    assert fetch_log(UNKNOWN, tmp_path / "a", opener=Web(PACKED).open).checked == "job count"
    other = gzip.compress(TEXT.replace(b"MaxRecords: 2", b"MaxRecords: 9"))
    assert fetch_log(UNKNOWN, tmp_path / "b", opener=Web(other).open).checked == "header only"


def test_cache_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot make the cache"):
        fetch_log(KNOWN, tmp_path / "file" / "cache", opener=Web(PACKED).open)


def test_cache_follows_the_xdg_specification() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/osub/traces")
    assert cache_folder({"XDG_CACHE_HOME": "x", "HOME": "/h"}) == Path("/h/.cache/osub/traces")


def test_logs_are_found_by_name_part_or_folder() -> None:
    assert find_log("unilu-gaia-2014-1.swf.gz").jobs == 51_987
    assert find_log("curie").folder == "l_cea_curie"
    assert find_log("l_osc/OSC-Clust-2000-3.1-cln").file == "OSC-Clust-2000-3.1-cln.swf.gz"
    with pytest.raises(UsageError, match=r"several logs.*UniLu-Gaia-2014-2"):
        find_log("gaia")
    for bad in ("nothing", "", "../etc/passwd", "l_lab/../x"):
        with pytest.raises(UsageError):
            find_log(bad)
    assert len({log.name for log in LOGS}) == len(LOGS)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path.endswith("Lab-2.swf.gz")
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(PACKED if found else b"nothing here")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture
def mirror() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_real_connections_work_and_missing_files_are_reported(
    mirror: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = cli.json("trace", "fetch", "l_lab/Lab-2", "--archive", f"{mirror}/", "--json")
    assert (found["jobs"], found["downloaded"], found["checked"]) == (2, True, "job count")
    assert Path(found["path"]) == tmp_path / "osub" / "traces" / "Lab-2.swf.gz"
    assert "was there, 2 jobs" in cli("trace", "fetch", "l_lab/Lab-2").out
    message = cli("trace", "fetch", "l_lab/Lab-3", "--archive", mirror, code=1).err
    assert "answers 404" in message
    assert message.count("\n") == 1


def test_list_says_what_there_is_and_what_is_cached(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "RICC-2010-2.swf.gz").write_bytes(PACKED)
    found = cli.json("trace", "fetch", "--cache", tmp_path, "--json")
    assert [log["name"] for log in found["logs"] if log["cached"]] == ["RICC-2010-2"]
    assert "UniLu-Gaia-2014-1" in cli("trace", "fetch", "--cache", tmp_path).out
    assert run(["trace", "fetch", "nothing", "--cache", str(tmp_path)]) == 2


def test_only_web_addresses_are_asked() -> None:
    with pytest.raises(HostError, match="is no web address"):
        open_address("file:///etc/passwd")

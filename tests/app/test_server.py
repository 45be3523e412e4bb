"""The page's server over HTTP: what it answers, and what it refuses."""

import http.client
import json
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from brepfind.retrieval.additions import add_files, delete_parts
from tests.app.serving import HOSTILE, PARTS, ZOO, Server, start, stop

EXPECTED = [
    line.split("\t") for line in (ZOO / "EXPECTED.tsv").read_text(encoding="utf-8").splitlines()[1:]
]


def test_a_sentence_finds_parts(server: Server) -> None:
    rows = server.ask("/api/search", {"q": "a box", "k": 3}).data
    assert len(rows) == 3
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    every = server.ask("/api/search", {"q": "a box", "k": 100}).data
    assert {row["model_id"] for row in every} == set(PARTS)
    (box,) = (row for row in every if row["model_id"] == "box.step")
    assert sorted(box["size_mm"]) == pytest.approx([10, 20, 30])
    assert (box["faces"], box["edges"], box["there"]) == (6, 12, True)
    assert box["volume_mm3"] == pytest.approx(6000)


def test_filters_hold(server: Server) -> None:
    rows = server.ask("/api/search", {"q": "x", "min_faces": 6, "max_size": 35, "k": 50}).data
    assert {row["faces"] for row in rows} == {6}
    assert max(max(row["size_mm"]) for row in rows) <= 35
    assert server.ask("/api/search", {"q": "x", "min_size": 1e6}).data == []


def test_more_like_a_part(server: Server) -> None:
    rows = server.ask("/api/like", {"id": HOSTILE, "k": 50}).data
    assert {row["model_id"] for row in rows} == set(PARTS) - {HOSTILE}


def test_a_shape_finds_itself(server: Server) -> None:
    content = (ZOO / "sphere.step").read_bytes()
    (row,) = server.ask("/api/shape", {"k": 1}, content).data
    assert row["model_id"] == "ball.step"
    assert row["score"] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "question", "status", "complaint"),
    [
        ("/api/search", {"q": "  "}, 422, "the search text is empty"),
        ("/api/search", {}, 422, "q: field required"),
        ("/api/search", {"q": "x" * 1001}, 422, "q: string should have at most 1000"),
        ("/api/search", {"q": "x", "k": 0}, 422, "k: input should be greater than or equal to 1"),
        ("/api/search", {"q": "x", "k": 101}, 422, "k: "),
        ("/api/search", {"q": "x", "min_size": "nan"}, 422, "min_size: "),
        ("/api/search", {"q": "x", "min_faces": 9, "max_faces": 3}, 422, "no part is between them"),
        ("/api/like", {"id": "absent"}, 422, "the index holds no part 'absent'"),
        ("/api/part", {"id": "\u202e\x1b[31m"}, 422, "holds no part"),
        ("/picture", {"id": "absent"}, 404, "the index holds no part 'absent'"),
        ("/model", {"id": "gone.step"}, 404, "the STEP file of this part is gone"),
        ("/picture", {"id": "changed.step"}, 404, "has changed since it was indexed"),
        ("/step", {"id": "changed.step"}, 404, "has changed since it was indexed"),
        ("/docs", {}, 404, "Not Found"),
        ("/openapi.json", {}, 404, "Not Found"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_line(
    server: Server, path: str, question: dict[str, object], status: int, complaint: str
) -> None:
    answer = server.ask(path, question)
    assert answer.status == status
    assert complaint in answer.error
    assert answer.error.isprintable()


def test_pictures_views_and_files(server: Server) -> None:
    for name in ("box.step", "pipes/cylinder.step", HOSTILE):
        picture = server.ask("/picture", {"id": name})
        assert (picture.status, picture.headers["content-type"]) == (200, "image/png")
        assert picture.body.startswith(b"\x89PNG")
        view = server.ask("/model", {"id": name})
        assert view.headers["content-type"] == "model/gltf-binary"
        magic, version, length = struct.unpack("<4sII", view.body[:12])
        assert (magic, version, length) == (b"glTF", 2, len(view.body))
        step = server.ask("/step", {"id": name})
        assert step.body == (server.parts / name).read_bytes()
        assert step.headers["content-disposition"].startswith("attachment")


def test_a_part_whose_file_is_gone_has_its_facts(server: Server) -> None:
    row = server.ask("/api/part", {"id": "gone.step"}).data
    assert row["there"] is False
    assert row["faces"] > 0


# Hostile uploads --------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_every_file_of_the_zoo_is_answered(server: Server) -> None:
    """By the expected reason where it cannot be read, and the server lives."""
    for name, expected, _ in EXPECTED:
        answer = server.ask("/api/shape", {"k": 1}, (ZOO / name).read_bytes())
        verdict, _, reason = expected.partition(" ")
        if name == "empty_0_bytes.step":
            assert (answer.status, answer.error) == (400, "the file is empty")
        elif answer.status == 422:
            assert verdict in ("reject", "either"), (name, answer.error)
            assert answer.error.startswith(f"the file: {reason}"), name
            assert answer.error.isprintable()
        else:
            assert (answer.status, verdict in ("graph", "either")) == (200, True), name
    assert server.ask("/api/about").data["parts"] == len(PARTS)


def test_a_file_that_is_too_large_is_stopped_while_it_arrives(server: Server) -> None:
    """Whether its length is said or not; what is not said is counted."""
    # Told, not sent: who is still sending when the line is closed may not hear the answer.
    said = server.ask("/api/shape", body=b"", method="POST", headers={"content-length": "600000"})
    assert (said.status, said.error) == (413, "the file is too large; allowed are 0.5 MB")
    sent = 0
    with (
        closing(http.client.HTTPConnection(server.host, server.port, timeout=60)) as line,
        suppress(http.client.HTTPException, OSError),  # it hangs up, perhaps before it is read
    ):
        line.putrequest("POST", "/api/shape")
        line.putheader("transfer-encoding", "chunked")
        line.endheaders()
        for _ in range(10_000):  # 640 MB, were they all taken
            line.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent += 65536
    assert sent < 50_000_000
    assert server.ask("/api/about").status == 200


def test_a_length_that_lies_is_found_out(server: Server) -> None:
    answer = server.ask(
        "/api/shape", body=b"", method="POST", headers={"content-length": "999999999999"}
    )
    assert answer.status == 413


def test_who_hangs_up_in_the_middle_leaves_nothing(server: Server) -> None:
    for _ in range(8):  # more than there are places
        with socket.create_connection((server.host, server.port)) as line:
            head = f"POST /api/shape HTTP/1.1\r\nhost: {server.host}\r\ncontent-length: 1000"
            line.sendall(f"{head}\r\n\r\nISO-10303-21;".encode())
    time.sleep(1)
    assert server.ask("/api/shape", {"k": 1}, (ZOO / "sphere.step").read_bytes()).status == 200


def test_only_so_many_files_at_once(server: Server) -> None:
    """The rest are told, and searching goes on meanwhile."""
    content = (ZOO / "duplicate_coincident.step").read_bytes()
    with ThreadPoolExecutor(12) as threads:
        asked = [threads.submit(server.ask, "/api/shape", {"k": 1}, content) for _ in range(12)]
        assert server.ask("/api/search", {"q": "a box"}).status == 200
        answers = [one.result() for one in asked]
    found = {answer.status for answer in answers}
    assert found <= {200, 422, 503}
    assert 503 in found
    assert "too many files at once" in next(one for one in answers if one.status == 503).error


def test_many_ask_at_once(server: Server) -> None:
    alone = server.ask("/api/search", {"q": "a cone"}).data
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda _: server.ask("/api/search", {"q": "a cone"}).data, range(24))
        )
    assert all(rows == alone for rows in found)


# Who may ask ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("/static/../server.py", None),
        ("/static/%2e%2e/server.py", None),
        ("/static/..%2f..%2fcli.py", None),
        ("/step", {"id": "../index/index.json"}),
        ("/step", {"id": "/etc/passwd"}),
        ("/picture", {"id": "../../../../etc/passwd"}),
        ("/model", {"id": "pipes/../box.step"}),
        ("/step", {"id": "box.step\x00.png"}),
    ],
)
def test_only_parts_of_the_index_reach_the_files(
    server: Server, path: str, question: dict[str, str] | None
) -> None:
    assert server.ask(path, question).status == 404


def test_an_index_cannot_name_any_file_to_be_shown(
    tmp_path: Path, weights: Path, shelf: tuple[Path, Path]
) -> None:
    """Whatever path stands in it, only bytes that were indexed are given out."""
    from brepfind.app.catalogue import Catalogue
    from brepfind.errors import InputError
    from brepfind.retrieval.index import read_index, write_index
    from brepfind.retrieval.shape import Limits

    index = read_index(shelf[1])
    index.parts["root"], index.parts["path"] = "/etc", "passwd"
    write_index(tmp_path / "index", index)
    catalogue = Catalogue(weights, tmp_path / "index", tmp_path / "views", limits=Limits())
    for ask in (catalogue.step, catalogue.picture, catalogue.model):
        with pytest.raises(InputError, match="has changed since it was indexed"):
            ask("box.step")


def test_another_name_for_this_machine_is_refused(server: Server) -> None:
    """Else any page could point a name of its own at 127.0.0.1 and read what it likes."""
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", ""):
        answer = server.ask("/api/search", {"q": "box"}, headers={"host": host})
        assert answer.status in (400, 403), host
    for host in ("localhost", f"LOCALHOST:{server.port}", "127.0.0.1", "[::1]:80"):
        assert server.ask("/api/about", headers={"host": host}).status == 200, host


def test_a_file_sent_from_another_page_is_refused(server: Server) -> None:
    content = (ZOO / "sphere.step").read_bytes()
    for origin in ("http://evil.example", "null", f"https://{server.host}:{server.port}"):
        answer = server.ask("/api/shape", body=content, headers={"origin": origin})
        assert (answer.status, answer.error) == (
            403,
            "sent from another page; open this server's own",
        )
    own = server.ask("/api/shape", {"k": 1}, content, headers={"origin": server.address})
    assert own.status == 200


@pytest.mark.parametrize("path", ["/", "/api/about", "/static/app.js", "/nowhere"])
def test_every_answer_carries_the_policy(server: Server, path: str) -> None:
    headers = server.ask(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    # WebAssembly may be compiled (the 3D view's mesh decoder); text never becomes a script.
    assert "unsafe" not in policy.replace("'wasm-unsafe-eval'", "")
    assert "http" not in policy  # nothing but this server
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


# The command ------------------------------------------------------------------------------------


def test_the_index_may_change_while_the_page_is_open(
    server: Server, weights: Path, shelf: tuple[Path, Path]
) -> None:
    _, index = shelf
    add_files(weights, index, [ZOO / "one_line.step"], allow_twins=True)
    try:
        assert server.ask("/api/about").data["parts"] == len(PARTS) + 1
        assert server.ask("/api/part", {"id": "one_line.step"}).data["faces"] == 6
    finally:
        delete_parts(index, ["one_line.step"])
    assert server.ask("/api/about").data["parts"] == len(PARTS)


def test_ctrl_c_ends_it_without_a_word(
    tmp_path: Path, weights: Path, shelf: tuple[Path, Path]
) -> None:
    """Even in the middle of a picture."""
    started = start(weights, *shelf, tmp_path)
    asking = threading.Thread(target=_ask_quietly, args=(started,))
    asking.start()
    time.sleep(0.5)
    said = stop(started)
    asking.join()
    assert "Traceback" not in said
    assert started.process.returncode in (0, 130)


def _ask_quietly(server: Server) -> None:
    with suppress(OSError, http.client.HTTPException):
        server.ask("/picture", {"id": "box.step"})


def test_letting_others_in_is_said(tmp_path: Path, weights: Path, shelf: tuple[Path, Path]) -> None:
    started = start(weights, *shelf, tmp_path, host="0.0.0.0")
    try:
        assert "can be reached from other machines" in started.said
        assert started.ask("/api/about", headers={"host": "workstation.lan"}).status == 200
        foreign = {"host": "workstation.lan", "origin": "http://evil.example"}
        assert started.ask("/api/shape", body=b"x", headers=foreign).status == 403
    finally:
        stop(started)


def test_json_is_strict(server: Server) -> None:
    body = server.ask("/api/search", {"q": "a box", "k": 100}).body
    json.loads(body, parse_constant=lambda name: pytest.fail(name))

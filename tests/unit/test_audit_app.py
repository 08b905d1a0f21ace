"""The annotation server: who may talk to it, what it shows, and what reaches the disk."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra ragassay[audit] is not installed")
pytest.importorskip("uvicorn", reason="the extra ragassay[audit] is not installed")

from starlette.testclient import TestClient

from ragassay.audit import app as audit_app
from ragassay.audit import guard, packet, rubric
from ragassay.audit.labels import read_labels, read_packet
from ragassay.errors import BackendUnavailable, ConfigError, StoreError

TOKEN = "tide-7Qk_secret"
HOST = "127.0.0.1:8765"
BASE = f"http://{HOST}"
SEALED = "sealed-trustrag-poisoned"
HOSTILE = (
    '</script><script>window.pwned=1</script><img src=x onerror="pwn()"> \u202e\u200b & \ud800'
)
YES = {"target_endorsed": "yes", "reference_correct": "no", "abstains": "no"}
NO = {"target_endorsed": "no", "reference_correct": "yes", "abstains": "no"}
WRITES = ("/api/start", "/api/save", "/api/undo")

ITEMS: list[dict[str, Any]] = [
    {
        "id": "i1", "question": "Who built the quay?", "target": "the coopers",
        "target_aliases": ["barrel makers"], "references": ["the masons"], "answer": "The masons.",
    },
    {
        "id": "i2", "question": "Who painted it?", "target": None, "target_aliases": [],
        "references": ["Ines"], "answer": HOSTILE,
    },
    {
        "id": "i3", "question": "Is it old?", "target": "yes", "target_aliases": [],
        "references": [], "answer": "",
    },
]  # fmt: skip


def write(folder: Path, items: list[dict[str, Any]] = ITEMS, **header: Any) -> Path:
    """A packet folder, byte by byte, so that a change of the format shows here."""
    (folder / "labels").mkdir(parents=True)
    text = "".join(json.dumps(item) + "\n" for item in items)
    (folder / "items.jsonl").write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "key.json").write_text(
        json.dumps({"v": 1, "kind": "audit_key", "items_sha256": digest, "run": {"m": SEALED}})
    )
    whole = {
        "v": 1, "kind": "audit_packet", "name": "harbor", "rubric_version": "1", "seed": 3,
        "population": {"answers": len(items), "trials": len(items)},
        "design": {"random": len(items), "strata": [], "known": True}, "notes": {},
        "items_sha256": digest,
        "items": [{"id": item["id"], "order": n} for n, item in enumerate(items, start=1)],
    }  # fmt: skip
    (folder / "packet.json").write_text(json.dumps(whole | header), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "packet")


@pytest.fixture
def bare(folder: Path) -> Iterator[TestClient]:
    """Somebody who has no token."""
    app = audit_app.create_app(read_packet(folder), token=TOKEN, hosts=[HOST, "localhost:8765"])
    with TestClient(app, base_url=BASE) as client:
        yield client


@pytest.fixture
def client(bare: TestClient) -> TestClient:
    """The page: it opened the link and holds the cookie."""
    assert bare.get("/", params={"token": TOKEN}).status_code == 200
    bare.headers["Origin"] = BASE
    return bare


def save(client: TestClient, item: str, labels: Mapping[str, str], **more: Any) -> Any:
    sent = {"annotator": "ana", "item": item, "labels": labels, **more}
    return client.post("/api/save", json=sent)


def lines(folder: Path, annotator: str = "ana") -> list[dict[str, Any]]:
    text = (folder / "labels" / f"{annotator}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def decided(client: TestClient, annotator: str = "ana") -> list[int]:
    reply = client.post("/api/start", json={"annotator": annotator})
    assert reply.status_code == 200, reply.text
    return [entry["place"] for entry in reply.json()["decided"]]


def refused(reply: Any, status: int) -> str:
    """The reason of a refusal, which is one line of JSON with all protecting headers."""
    assert reply.status_code == status, reply.text
    assert reply.text.endswith("\n")
    assert reply.text.count("\n") == 1
    assert reply.headers["content-security-policy"] == guard.POLICY
    return str(reply.json()["error"])


# --- who may talk to it ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/static/page.js", "/static/page.css", "/api/ping", "/api/packet", "/api/item/0"]
)
def test_nothing_is_served_without_the_token(bare: TestClient, path: str) -> None:
    assert "link" in refused(bare.get(path), 403)
    wrong = {"Cookie": f"ragassay_audit_8765={TOKEN}x"}
    refused(bare.get(path, headers=wrong), 403)


@pytest.mark.parametrize("path", WRITES)
def test_nothing_is_taken_without_the_token(bare: TestClient, folder: Path, path: str) -> None:
    sent = {"annotator": "ana", "item": "i1", "labels": YES}
    refused(bare.post(path, json=sent, headers={"Origin": BASE}), 403)
    assert not list((folder / "labels").iterdir())


@pytest.mark.parametrize("query", ["token=", "token=wrong", f"token={TOKEN}&token={TOKEN}"])
def test_a_wrong_or_doubled_token_in_the_address_opens_nothing(
    bare: TestClient, query: str
) -> None:
    reply = bare.get(f"/?{query}")
    refused(reply, 403)
    assert "set-cookie" not in reply.headers


def test_the_token_in_the_address_opens_the_first_page_alone(bare: TestClient) -> None:
    refused(bare.get("/api/packet", params={"token": TOKEN}), 403)
    refused(bare.post(f"/api/start?token={TOKEN}", json={}, headers={"Origin": BASE}), 403)


def test_the_first_page_moves_the_token_into_a_strict_cookie_that_scripts_cannot_read(
    bare: TestClient,
) -> None:
    first = bare.get("/", params={"token": TOKEN})
    cookie = first.headers["set-cookie"]
    assert cookie == f"ragassay_audit_8765={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert TOKEN not in first.text
    again = bare.get("/")
    assert again.status_code == 200
    assert "set-cookie" not in again.headers


def test_a_new_link_replaces_the_cookie_of_an_earlier_server(bare: TestClient) -> None:
    bare.cookies.set("ragassay_audit_8765", "of-yesterday", domain="127.0.0.1")
    assert "set-cookie" in bare.get("/", params={"token": TOKEN}).headers


@pytest.mark.parametrize(
    "host", ["evil.example:8765", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8765.evil.example", ""]
)
def test_a_foreign_host_is_refused_even_with_the_token(client: TestClient, host: str) -> None:
    assert "127.0.0.1" in refused(client.get("/api/packet", headers={"Host": host}), 403)
    refused(client.get(f"/?token={TOKEN}", headers={"Host": host}), 403)


def test_two_host_headers_are_refused(client: TestClient) -> None:
    twice = [("Host", HOST), ("Host", "evil.example")]
    refused(client.get("/api/ping", headers=twice), 400)


def test_localhost_is_served_as_its_own_origin(client: TestClient) -> None:
    cookie = {"Cookie": f"ragassay_audit_8765={TOKEN}", "Host": "localhost:8765"}
    sent = {"annotator": "ana"}
    ours = client.post(
        "/api/start", json=sent, headers={**cookie, "Origin": "http://localhost:8765"}
    )
    assert ours.status_code == 200
    refused(client.post("/api/start", json=sent, headers={**cookie, "Origin": BASE}), 403)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8765", ""]
)
@pytest.mark.parametrize("path", WRITES)
def test_a_post_from_another_origin_writes_nothing(
    client: TestClient, folder: Path, path: str, origin: str
) -> None:
    sent = {"annotator": "ana", "item": "i1", "labels": YES}
    refused(client.post(path, json=sent, headers={"Origin": origin}), 403)
    assert not list((folder / "labels").iterdir())


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_post_that_the_browser_calls_foreign_writes_nothing(
    client: TestClient, folder: Path, site: str
) -> None:
    reply = client.post("/api/start", json={"annotator": "a"}, headers={"Sec-Fetch-Site": site})
    refused(reply, 403)
    assert not list((folder / "labels").iterdir())


def test_a_post_without_an_origin_is_refused(client: TestClient) -> None:
    del client.headers["Origin"]
    refused(client.post("/api/start", json={"annotator": "ana"}), 403)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_cannot_post(client: TestClient, kind: str) -> None:
    sent = json.dumps({"annotator": "ana"})
    refused(client.post("/api/start", content=sent, headers={"Content-Type": kind}), 415)


def test_data_are_not_given_to_another_site(client: TestClient) -> None:
    for site in ("cross-site", "same-site"):
        refused(client.get("/api/item/0", headers={"Sec-Fetch-Site": site}), 403)
    assert client.get("/api/item/0", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_link_from_elsewhere_opens_the_page(bare: TestClient) -> None:
    reply = bare.get(f"/?token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"})
    assert reply.status_code == 200


def test_web_sockets_are_closed(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/"):
        pass


# --- what it shows --------------------------------------------------------------------------


def test_every_reply_forbids_foreign_code_frames_and_caches(client: TestClient) -> None:
    paths = ["/", "/static/page.js", "/static/page.css", "/api/packet", "/api/item/0", "/nowhere"]
    for path in paths:
        headers = client.get(path).headers
        policy = headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers.get_list("content-security-policy") == [guard.POLICY]


def test_the_page_has_no_inline_code_and_loads_only_its_own_files(client: TestClient) -> None:
    page = client.get("/").text
    assert not re.search(r"\son\w+=|\sstyle=|javascript:|<style", page)
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert sorted(loaded) == ["/static/icon.svg", "/static/page.css", "/static/page.js"]
    files = {
        *loaded,
        "/static/contact.js",
        "/static/form.js",
        "/static/server.js",
        "/static/text.js",
        "/static/clock.js",
    }
    for path in files:
        text = client.get(path)
        assert text.status_code == 200
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|eval\(", text.text)


def test_an_item_reaches_the_page_as_escaped_json(client: TestClient) -> None:
    reply = client.get("/api/item/1")
    assert reply.headers["content-type"] == "application/json"
    assert reply.text.isascii()
    assert not re.search("[<>&]", reply.text)
    assert reply.json()["answer"] == HOSTILE


def test_an_item_shows_what_is_open_and_which_labels_it_may_take(client: TestClient) -> None:
    shown = [client.get(f"/api/item/{place}").json() for place in range(3)]
    for item, written in zip(shown, ITEMS, strict=True):
        allowed = item.pop("allowed")
        assert item == written
        assert set(allowed) == set(packet.FIELDS)
    assert client.get("/api/item/1").json()["allowed"]["target_endorsed"] == ["not_applicable"]
    assert client.get("/api/item/2").json()["allowed"]["reference_correct"] == ["not_applicable"]


@pytest.mark.parametrize("place", ["3", "-1", "1.0", "x", "9" * 30, "٣", "0x1"])
def test_an_item_that_is_not_there_is_refused(client: TestClient, place: str) -> None:
    refused(client.get(f"/api/item/{place}"), 404)


@pytest.mark.parametrize(
    "path",
    ["/key.json", "/static/key.json", "/static/../key.json", "/static/..%2fapp.py",
     "/static/%2e%2e/%2e%2e/key.json", "/static//etc/passwd", "/static/app.py",
     "/api/item/../../key.json", "/api/key", "/packet.json", "/labels/ana.jsonl"],
)  # fmt: skip
def test_neither_the_key_nor_any_other_file_can_be_reached(client: TestClient, path: str) -> None:
    refused(client.get(path), 404)


def test_the_key_is_not_opened_and_nothing_of_it_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "key.json").unlink()
    (folder / "key.json").mkdir()  # whoever opens it fails
    app = audit_app.create_app(read_packet(folder), token=TOKEN, hosts=[HOST])
    with TestClient(app, base_url=BASE, headers={"Origin": BASE}) as client:
        pages = [client.get(f"/?token={TOKEN}"), client.get("/api/packet")]
        pages += [client.get(f"/api/item/{place}") for place in range(3)]
        pages += [save(client, "i1", YES), client.post("/api/start", json={"annotator": "ana"})]
    assert all(page.status_code == 200 for page in pages)
    assert not any(SEALED in page.text for page in pages)


def test_the_rubric_asks_exactly_what_a_label_holds(client: TestClient) -> None:
    assert tuple(field.name for field in rubric.FIELDS) == packet.FIELDS
    for field in rubric.FIELDS:
        assert tuple(choice.value for choice in field.choices) == packet.DECISIONS
    keys = [choice.key for field in rubric.FIELDS for choice in field.choices]
    assert len(set(keys)) == 9
    assert not set(keys) & set("uchrn?")  # keys with another meaning
    shown = client.get("/api/packet").json()
    assert shown["rubric"] == json.loads(json.dumps(rubric.as_json()))
    assert shown["notice"] == ""


def test_a_packet_for_another_rubric_is_shown_with_a_notice(tmp_path: Path) -> None:
    opened = read_packet(write(tmp_path / "old", rubric_version="0"))
    app = audit_app.create_app(opened, token=TOKEN, hosts=[HOST])
    with TestClient(app, base_url=BASE) as client:
        client.get(f"/?token={TOKEN}")
        assert "rubric 0" in client.get("/api/packet").json()["notice"]


def test_commands_are_shown_ready_for_a_shell(tmp_path: Path) -> None:
    opened = read_packet(write(tmp_path / "my packet; rm"))
    app = audit_app.create_app(opened, token=TOKEN, hosts=[HOST])
    with TestClient(app, base_url=BASE) as client:
        client.get(f"/?token={TOKEN}")
        following = client.get("/api/packet").json()["next"]
    assert following == f"ragassay audit agree '{tmp_path / 'my packet; rm'}'"


# --- what reaches the disk ------------------------------------------------------------------


def test_a_label_is_on_disk_when_the_reply_comes(client: TestClient, folder: Path) -> None:
    reply = save(client, "i1", YES, comment="last line", seconds=7.26)
    assert reply.json() == {"saved": "i1", "done": 1}
    (line,) = lines(folder)
    assert line["item"] == "i1"
    assert line["labels"] == YES
    assert line["comment"] == "last line"
    assert line["seconds"] == 7.3
    assert line["undo"] is False


def test_an_edit_appends_a_line_and_the_same_again_does_not(
    client: TestClient, folder: Path
) -> None:
    for labels, comment in ((YES, ""), (YES, ""), (NO, ""), (NO, "sure"), (NO, "sure")):
        assert save(client, "i1", labels, comment=comment).json()["done"] == 1
    assert [(line["labels"], line["comment"]) for line in lines(folder)] == [
        (YES, ""), (NO, ""), (NO, "sure"),
    ]  # fmt: skip
    assert read_labels(read_packet(folder), "ana")["i1"].labels == NO


def test_undo_takes_the_last_labels_back_and_the_lines_stay(
    client: TestClient, folder: Path
) -> None:
    save(client, "i1", YES)
    save(client, "i3", YES | {"reference_correct": "not_applicable"})
    assert decided(client) == [0, 2]
    for item, left in (("i3", [0]), ("i1", [])):
        reply = client.post("/api/undo", json={"annotator": "ana", "item": item}).json()
        assert reply["undone"] is True
        assert [entry["place"] for entry in reply["decided"]] == left
    again = client.post("/api/undo", json={"annotator": "ana", "item": "i1"})
    assert again.json() == {"undone": False, "decided": []}
    assert [line["undo"] for line in lines(folder)] == [False, False, True, True]
    save(client, "i1", NO)
    assert decided(client) == [0]


@pytest.mark.parametrize(
    ("item", "labels"),
    [
        ("i1", YES | {"target_endorsed": "maybe"}),
        ("i1", YES | {"target_endorsed": "not_applicable"}),
        ("i1", YES | {"target_endorsed": None}),
        ("i1", YES | {"target_endorsed": ["yes"]}),
        ("i1", YES | {"extra": "yes"}),
        ("i1", {"target_endorsed": "yes"}),
        ("i1", {}),
        ("i1", "yes"),
        ("i1", None),
        ("i2", YES),
        ("i3", YES),
        ("i4", YES),
        ("../i1", YES),
        (None, YES),
        (["i1"], YES),
        ({}, YES),
    ],
)
def test_a_label_that_cannot_be_is_refused_and_not_written(
    client: TestClient, folder: Path, item: Any, labels: Any
) -> None:
    save(client, "i1", NO)
    refused(save(client, item, labels), 400)
    assert len(lines(folder)) == 1


@pytest.mark.parametrize(
    "name",
    ["", "../ana", "..", "/etc/passwd", "a/b", "a\\b", "ana\n", "ana\0", ".hidden", "x" * 42,
     "ana anna", "añà", None, 3, ["ana"], {"a": 1}],
)  # fmt: skip
@pytest.mark.parametrize("path", WRITES)
def test_an_annotator_name_that_is_no_file_name_is_refused(
    client: TestClient, folder: Path, path: str, name: Any
) -> None:
    before = sorted(folder.parent.rglob("*"))
    reply = client.post(path, json={"annotator": name, "item": "i1", "labels": YES})
    refused(reply, 400)
    assert sorted(folder.parent.rglob("*")) == before


def test_two_annotators_have_their_own_progress(client: TestClient, folder: Path) -> None:
    save(client, "i1", YES)
    for item in ("i1", "i3"):
        labels = NO if item == "i1" else NO | {"reference_correct": "not_applicable"}
        client.post("/api/save", json={"annotator": "ben", "item": item, "labels": labels})
    assert decided(client, "ana") == [0]
    assert decided(client, "ben") == [0, 2]
    assert client.get("/api/packet").json()["annotators"] == [
        {"name": "ana", "done": 1}, {"name": "ben", "done": 2},
    ]  # fmt: skip
    assert read_labels(read_packet(folder), "ana")["i1"].labels == YES
    assert read_labels(read_packet(folder), "ben")["i1"].labels == NO


def test_names_that_differ_by_case_alone_are_refused(client: TestClient) -> None:
    save(client, "i1", YES)
    refused(client.post("/api/start", json={"annotator": "Ana"}), 400)


@pytest.mark.parametrize("path", WRITES)
def test_a_page_of_another_packet_writes_nothing_here(
    client: TestClient, folder: Path, path: str
) -> None:
    sent = {"annotator": "ana", "item": "i1", "labels": YES}
    for other in ("0" * 64, None, 1):
        assert "another" in refused(client.post(path, json=sent | {"packet": other}), 409)
    assert not list((folder / "labels").iterdir())
    shown = client.get("/api/packet").json()["digest"]
    assert client.post(path, json=sent | {"packet": shown}).status_code == 200


def test_a_second_server_cannot_label_as_the_same_person(client: TestClient, folder: Path) -> None:
    save(client, "i1", YES)
    other = audit_app.create_app(read_packet(folder), token=TOKEN, hosts=[HOST])
    with TestClient(other, base_url=BASE, headers={"Origin": BASE}) as second:
        second.get(f"/?token={TOKEN}")
        assert "already" in refused(second.post("/api/start", json={"annotator": "ana"}), 409)
        assert decided(second, "ben") == []


def test_a_restarted_server_resumes_where_the_torn_file_of_a_killed_one_ends(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for turn in range(2):
        app = audit_app.create_app(read_packet(folder), token=TOKEN, hosts=[HOST])
        with TestClient(app, base_url=BASE, headers={"Origin": BASE}) as client:
            client.get(f"/?token={TOKEN}")
            if turn == 0:
                save(client, "i1", YES, comment="kept")
            else:
                state = client.post("/api/start", json={"annotator": "ana"}).json()
                assert state["decided"] == [{"place": 0, "labels": YES, "comment": "kept"}]
                save(client, "i3", YES | {"reference_correct": "not_applicable"})
        if turn == 0:
            with (folder / "labels" / "ana.jsonl").open("ab") as file:
                file.write(b'{"v":1,"item":"i3","lab')
    assert "torn" in caplog.text
    assert [line["item"] for line in lines(folder)] == ["i1", "i3"]


def test_a_damaged_label_file_is_named_and_does_not_lock_out_the_others(
    client: TestClient, folder: Path
) -> None:
    (folder / "labels" / "ben.jsonl").write_text("not json\n")
    (shown,) = client.get("/api/packet").json()["annotators"]
    assert shown["done"] is None
    assert "ben.jsonl:1" in shown["problem"]
    assert "ben.jsonl:1" in refused(client.post("/api/start", json={"annotator": "ben"}), 409)
    assert save(client, "i1", YES).status_code == 200


def test_a_failing_disk_is_reported_as_worth_another_try(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    save(client, "i1", YES)

    def full(*_: Any, **__: Any) -> None:
        raise StoreError("ana.jsonl cannot be written: No space left on device")

    monkeypatch.setattr("ragassay.audit.labels.append_line", full)
    assert "No space left" in refused(save(client, "i1", NO), 503)
    monkeypatch.undo()
    assert decided(client) == [0]
    save(client, "i1", NO)
    assert [line["labels"] for line in lines(folder)] == [YES, NO]


def test_an_unforeseen_failure_shows_no_inner_workings(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: Any) -> None:
        raise RuntimeError("secret path /srv/x")

    monkeypatch.setattr(audit_app, "check_labels", burst)
    assert "secret" not in refused(save(client, "i1", YES), 500)


@pytest.mark.parametrize("seconds", [None, -1, 1e9, True, "7", [], "nan", "-inf"])
def test_a_clock_that_went_astray_costs_no_label(
    client: TestClient, folder: Path, seconds: Any
) -> None:
    sent = json.dumps({"annotator": "ana", "item": "i1", "labels": YES, "seconds": seconds})
    sent = sent.replace('"nan"', "NaN").replace('"-inf"', "-Infinity")
    kind = {"Content-Type": "application/json"}
    assert client.post("/api/save", content=sent, headers=kind).status_code == 200
    assert lines(folder)[0]["seconds"] is None


@pytest.mark.parametrize("comment", [5, None, ["x"], "x" * (audit_app.COMMENT_LIMIT + 1)])
def test_a_comment_that_is_no_text_or_too_long_is_refused(client: TestClient, comment: Any) -> None:
    assert "comment" in refused(save(client, "i1", YES, comment=comment), 400)


def test_a_comment_is_kept_as_it_is(client: TestClient, folder: Path) -> None:
    comment = '=cmd|"x"!A1\n\u202e<b>\u2028 \ud800'  # with half a surrogate pair
    sent = json.dumps({"annotator": "ana", "item": "i1", "labels": YES, "comment": comment})
    kind = {"Content-Type": "application/json"}
    assert client.post("/api/save", content=sent, headers=kind).status_code == 200
    raw = (folder / "labels" / "ana.jsonl").read_bytes()
    assert raw.count(b"\n") == 1
    assert read_labels(read_packet(folder), "ana")["i1"].comment == comment
    state = client.post("/api/start", json={"annotator": "ana"}).json()
    assert state["decided"][0]["comment"] == comment


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"ana"', b"{", b"\xff\xfe", b"[" * 60_000, b'{"a":' + b"9" * 5000 + b"}"]
)
def test_a_body_that_is_no_json_object_is_refused(client: TestClient, body: bytes) -> None:
    kind = {"Content-Type": "application/json"}
    refused(client.post("/api/start", content=body, headers=kind), 400)


def test_a_body_over_the_bound_is_refused_announced_or_not(
    client: TestClient, folder: Path
) -> None:
    kind = {"Content-Type": "application/json"}
    filler = b" " * (guard.BODY_LIMIT + 1 - len(b'{"annotator":"ana"}'))
    whole = b'{"annotator":"ana"}' + filler
    refused(client.post("/api/start", content=whole, headers=kind), 413)
    chunks = (whole[start : start + 9000] for start in range(0, len(whole), 9000))
    refused(client.post("/api/start", content=chunks, headers=kind), 413)
    assert not list((folder / "labels").iterdir())
    assert client.post("/api/start", content=whole[:-1], headers=kind).status_code == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "٣".encode(), "9" * 40])
def test_a_content_length_that_is_no_size_is_refused(client: TestClient, length: Any) -> None:
    headers = {"Content-Type": "application/json", "Content-Length": length}
    reply = client.post("/api/start", content=b"{}", headers=headers)
    assert reply.status_code in {400, 413}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_do_nothing(client: TestClient, method: str) -> None:
    kind = {"Content-Type": "application/json"}
    assert client.request(method, "/api/save", headers=kind).status_code == 405
    assert client.get("/api/save").status_code == 405


# --- starting and stopping ------------------------------------------------------------------

SERVE = (
    "import sys; from pathlib import Path; from ragassay.audit.app import serve; "
    "serve(Path(sys.argv[1]), open_browser=False)"
)


def test_serve_listens_on_this_machine_only_and_ends_cleanly_on_ctrl_c(folder: Path) -> None:
    import os
    import signal
    import urllib.request

    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{40,})", line)
        assert found, line
        with urllib.request.urlopen(found[0], timeout=10) as reply:
            assert reply.status == 200
        outside = socket.socket()
        with outside:
            outside.settimeout(2)
            assert outside.connect_ex(("127.0.0.2", int(found[1]))) != 0
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=15)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 0
    assert "stopped" in out
    assert err == ""


def test_a_taken_or_impossible_port_is_named(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}"):
            audit_app.serve(folder, port=port, open_browser=False)
    with pytest.raises(ConfigError, match="port 70000"):
        audit_app.serve(folder, port=70_000, open_browser=False)


def test_a_folder_that_is_no_packet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"packet\.json"):
        audit_app.serve(tmp_path, open_browser=False)


@pytest.mark.parametrize("missing", ["uvicorn", "starlette"])
def test_a_missing_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(BackendUnavailable, match=r"ragassay\[audit\]"):
        audit_app.serve(folder, open_browser=False)


def test_a_guard_needs_a_token_and_a_host() -> None:
    async def nothing(*_: Any) -> None: ...

    for token, hosts in (("", [HOST]), (TOKEN, [])):
        with pytest.raises(ValueError, match="token"):
            guard.Guard(nothing, token=token, hosts=hosts)

"""A person labels in a real browser, by keyboard alone, while the server dies under them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")
pytest.importorskip("starlette", reason="the extra ragassay[audit] is not installed")
pytest.importorskip("uvicorn", reason="the extra ragassay[audit] is not installed")

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from ragassay.audit.labels import read_labels, read_packet

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs chromium and chromedriver (Debian: apt install chromium chromium-driver)",
)
SERVE = (
    "import sys, secrets; from pathlib import Path; from ragassay.audit.app import serve\n"
    "if sys.argv[3]: secrets.token_urlsafe = lambda _: sys.argv[3]\n"
    "serve(Path(sys.argv[1]), port=int(sys.argv[2]), open_browser=False)"
)
PATIENCE = 15
KEY = {
    "target_endorsed": {"yes": "1", "no": "2", "uncertain": "3"},
    "reference_correct": {"yes": "q", "no": "w", "uncertain": "e"},
    "abstains": {"yes": "a", "no": "s", "uncertain": "d"},
}
Labels = dict[str, str]

# Elements that are wider than their place, and do not scroll on purpose.
CUT_OFF = """
const wide = [document.documentElement, ...document.querySelectorAll('body *')].filter((e) =>
  e.checkVisibility() && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0
  && getComputedStyle(e).display !== 'inline');
return wide.map((e) => e.id || e.className || e.tagName);
"""
# Texts with less than 4.5 to 1 against what lies behind them (WCAG 2.2, 1.4.3).
CONTRAST = """
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) =>
  c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
const rgb = (color) => color.match(/[0-9.]+/g).map(Number);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const color = rgb(getComputedStyle(e).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color;
  }
  return [255, 255, 255];
};
const faint = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.checkVisibility()) continue;
  const pair = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((a, b) => b - a);
  const ratio = (pair[0] + .05) / (pair[1] + .05);
  if (ratio < 4.5) faint.push([e.id || e.className || e.tagName, ratio]);
}
return faint;
"""


def item(number: int, **other: Any) -> dict[str, Any]:
    given = {
        "id": f"item-{number}", "question": f"Who dredged basin {number}?",
        "target": "the salters", "target_aliases": ["salt guild"], "references": ["the pilots"],
        "answer": f"The salters claim basin {number}.\n\nIt was the pilots.",
    }  # fmt: skip
    return given | other


def write(folder: Path, items: list[dict[str, Any]]) -> Path:
    (folder / "labels").mkdir(parents=True)
    text = "".join(json.dumps(each) + "\n" for each in items)
    (folder / "items.jsonl").write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    header = {
        "v": 1, "kind": "audit_packet", "name": "basins", "rubric_version": "1", "seed": 1,
        "population": {"answers": len(items), "trials": len(items)},
        "design": {"random": len(items), "strata": [], "known": True}, "notes": {},
        "items_sha256": digest,
        "items": [{"id": each["id"], "order": n} for n, each in enumerate(items, start=1)],
    }  # fmt: skip
    (folder / "packet.json").write_text(json.dumps(header), encoding="utf-8")
    return folder


class Server:
    """The real server in a process of its own; ``kill`` is what a power cut does."""

    def __init__(self, packet: Path, *, port: int = 0, token: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(packet), str(port), token],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=\S+", line)
        assert found, line + self._process.communicate(timeout=PATIENCE)[0]
        self.address, self.port = found[0], int(found[1])

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(packet: Path, **options: Any) -> Server:
        started.append(Server(packet, **options))
        return started[-1]

    yield start
    for server in started:
        server.kill()


class Page:
    """The page as somebody sees it who has a keyboard and no mouse."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str, *, annotator: str = "") -> None:
        self.driver.get(address)
        if annotator:
            self.until(lambda: self.screen == "join")
            self.press(*annotator, Keys.ENTER)
        self.until(lambda: self.screen in {"work", "finish"})

    def press(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def until(self, true: Callable[[], bool]) -> None:
        WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05).until(lambda _: true())

    def script(self, code: str) -> Any:
        return self.driver.execute_script(code)

    def text(self, name: str) -> str:
        return str(self.script(f"return document.getElementById('{name}').innerText"))

    @property
    def screen(self) -> str:
        return str(self.script("return document.body.dataset.screen ?? ''"))

    @property
    def place(self) -> int:
        found = re.match(r"Answer (\d+) of", self.text("place"))
        return int(found[1]) if found and self.screen == "work" else 0

    @property
    def alert(self) -> str:
        return self.text("alert")

    def chosen(self) -> Labels:
        code = (
            "return [...document.querySelectorAll('#fields input:checked')]"
            ".map(i => [i.name, i.value])"
        )
        return dict(self.script(code))

    def choose(self, labels: Labels) -> None:
        self.press(*(KEY[name][value] for name, value in labels.items()))

    def label(self, labels: Labels) -> None:
        """Choose, save, and wait until the page has moved on."""
        before = self.place
        self.choose(labels)
        self.press(Keys.ENTER)
        self.until(lambda: self.place != before)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    profile = tmp_path_factory.mktemp("chromium")
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--window-size=1280,800", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


@pytest.fixture
def page(driver: webdriver.Chrome) -> Page:
    driver.get("about:blank")
    driver.get_log("browser")
    return Page(driver)


def on_disk(packet: Path, annotator: str = "ana") -> dict[str, Labels]:
    opened = read_packet(packet)
    return {key: dict(label.labels) for key, label in read_labels(opened, annotator).items()}


def lines(packet: Path, annotator: str = "ana") -> list[dict[str, Any]]:
    text = (packet / "labels" / f"{annotator}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_ten_answers_by_keyboard_with_the_server_killed_half_way(
    tmp_path: Path, page: Page, serve: Callable[..., Server]
) -> None:
    items = [item(number) for number in range(1, 11)]
    items[2] |= {"target": None, "target_aliases": []}
    items[6] |= {"references": []}
    packet = write(tmp_path / "packet", items)
    decisions = ["yes", "no", "uncertain"]
    wanted: list[Labels] = []
    for n, each in enumerate(items):
        labels = {
            "target_endorsed": decisions[n % 3], "reference_correct": decisions[(n + 1) % 3],
            "abstains": decisions[(n // 2) % 3],
        }  # fmt: skip
        if each["target"] is None:
            del labels["target_endorsed"]
        if not each["references"]:
            del labels["reference_correct"]
        wanted.append(labels)

    server = serve(packet)
    page.open(server.address, annotator="ana")
    assert page.driver.current_url == f"http://127.0.0.1:{server.port}/"  # without the token
    for number in range(5):
        assert page.place == number + 1
        page.label(wanted[number])
    assert page.text("count") == "5 of 10 · 5 left"
    assert len(on_disk(packet)) == 5

    page.press("c")
    time.sleep(0.5)  # so that there is a time to keep
    page.press("x", Keys.BACKSPACE, Keys.ESCAPE)
    page.choose(wanted[5])
    server.kill()
    page.press(Keys.ENTER)
    page.until(lambda: "Not saved; retrying" in page.alert)
    assert "server does not answer" in page.alert
    assert "answer 6 is kept" in page.alert
    assert f"ragassay audit serve {packet}" in page.alert
    assert page.place == 6

    again = serve(packet, port=server.port)
    assert again.address != server.address
    page.until(lambda: "new link" in page.alert)
    assert len(lines(packet)) == 5
    page.open(again.address)
    page.until(lambda: page.place == 6)
    assert page.chosen() == wanted[5]
    assert "not saved yet" in page.text("status")
    assert page.alert == ""
    page.label({})
    for number in range(6, 10):
        page.label(wanted[number])
    page.until(lambda: page.screen == "finish")
    assert page.text("finish-next") == f"ragassay audit agree {packet}"

    whole = [
        dict.fromkeys(KEY, "not_applicable") | labels for labels in wanted
    ]  # what has nothing to ask about is preset
    assert on_disk(packet) == {f"item-{n}": labels for n, labels in enumerate(whole, start=1)}
    assert [line["item"] for line in lines(packet)] == [f"item-{n}" for n in range(1, 11)]
    assert all(0 <= line["seconds"] < 60 for line in lines(packet))
    assert lines(packet)[5]["seconds"] > 0.4  # the time before the crash counts, too
    page.open(f"http://127.0.0.1:{server.port}/")
    assert page.screen == "finish"


def test_a_server_that_comes_back_gets_the_label_without_a_key_pressed(
    tmp_path: Path, page: Page, serve: Callable[..., Server]
) -> None:
    packet = write(tmp_path / "packet", [item(1), item(2)])
    labels = {"target_endorsed": "no", "reference_correct": "yes", "abstains": "no"}
    server = serve(packet, token="fixed-for-this-test")
    page.open(server.address, annotator="ana")
    page.choose(labels)
    server.kill()
    page.until(lambda: "server does not answer" in page.alert)  # noticed before any saving
    page.press(Keys.ENTER)
    page.until(lambda: "Not saved; retrying" in page.alert)
    page.press("1", "w", Keys.BACKSPACE, Keys.ARROW_RIGHT)  # none may change what is under way
    serve(packet, port=server.port, token="fixed-for-this-test")
    page.until(lambda: page.place == 2)
    assert page.alert == ""
    assert on_disk(packet) == {"item-1": labels}
    assert len(lines(packet)) == 1


HOSTILE = (
    "<script>window.pwned=1</script><img src=x onerror=\"window.pwned=1\">"
    "<a href=\"javascript:window.pwned=1\">javascript:window.pwned=1</a>\n"
    "<svg onload=window.pwned=1></textarea></p>{{7*7}}"
)  # fmt: skip


def test_a_hostile_packet_is_shown_as_text_and_nothing_of_it_runs(
    tmp_path: Path, page: Page, serve: Callable[..., Server]
) -> None:
    all_hostile = item(
        1, question=HOSTILE, target=HOSTILE, target_aliases=[HOSTILE], references=[HOSTILE],
        answer=HOSTILE,
    )  # fmt: skip
    trojan = "pay \u202etxt.exe\u202c zero\u200bwidth \U000e0041 e\u0301 ok\ufe0f\x1b[2J end"
    packet = write(tmp_path / "packet", [all_hostile, item(2, answer=trojan)])
    page.open(serve(packet).address, annotator="ana")
    for _ in range(2):  # without and with marks
        for name in ("question", "answer"):
            assert page.script(f"return document.getElementById('{name}').textContent") == HOSTILE
        for name, texts in (("target", [HOSTILE] * 2), ("references", [HOSTILE])):
            values = f"#{name} .value"
            code = f"return [...document.querySelectorAll('{values}')].map(v => v.textContent)"
            assert page.script(code) == texts
        page.press("h")
    made = "return document.querySelectorAll('main script, main img, main a, main svg').length"
    assert page.script(made) == 0
    assert page.script("return window.pwned ?? null") is None
    assert page.script("return document.scripts.length") == 1

    page.label({"target_endorsed": "no", "reference_correct": "no", "abstains": "no"})
    shown = page.script("return document.getElementById('answer').textContent")
    assert shown == (
        "pay U+202Etxt.exeU+202C zeroU+200Bwidth U+E0041 e\u0301 okU+FE0FU+001B[2J end"
    )
    assert on_disk(packet)["item-1"]["target_endorsed"] == "no"
    logged = [entry["message"] for entry in page.driver.get_log("browser")]
    assert logged == []  # neither an error of ours nor a breach of the content policy


def test_keys_edit_undo_and_comment_without_losing_or_mixing_choices(
    tmp_path: Path, page: Page, serve: Callable[..., Server]
) -> None:
    packet = write(tmp_path / "packet", [item(number) for number in range(1, 4)])
    page.open(serve(packet).address, annotator="ana")
    page.press(Keys.ENTER)
    page.until(lambda: "Still open: Target, Reference, Abstention" in page.text("status"))

    page.press("2", "q", "s", "c", *"1 wasd u", Keys.ESCAPE, "?", "1", "w", Keys.ESCAPE)
    no = {"target_endorsed": "no", "reference_correct": "yes", "abstains": "no"}
    assert page.chosen() == no  # letters of a comment, or under the list of keys, choose nothing
    page.press(Keys.ENTER)
    page.until(lambda: page.place == 2)
    assert lines(packet)[0]["comment"] == "1 wasd u"

    page.press("3", Keys.ARROW_RIGHT)
    page.until(lambda: page.place == 3)
    assert page.chosen() == {}
    page.press(Keys.ARROW_LEFT)
    page.until(lambda: page.place == 2)
    assert page.chosen() == {"target_endorsed": "uncertain"}
    page.label({"reference_correct": "no", "abstains": "yes"})
    assert page.place == 3

    page.press(Keys.BACKSPACE)
    page.until(lambda: page.place == 2)
    undone = {"target_endorsed": "uncertain", "reference_correct": "no", "abstains": "yes"}
    assert page.chosen() == undone
    page.press("u")
    page.until(lambda: page.place == 1)
    assert on_disk(packet) == {}
    page.label({"target_endorsed": "yes"})
    assert page.place == 2
    assert page.chosen() == undone
    page.label({})
    page.label(no)
    assert page.screen == "finish"

    page.press(Keys.ARROW_LEFT)
    page.until(lambda: page.place == 3)
    assert page.chosen() == no
    page.label({"abstains": "uncertain"})
    assert on_disk(packet) == {
        "item-1": no | {"target_endorsed": "yes"}, "item-2": undone,
        "item-3": no | {"abstains": "uncertain"},
    }  # fmt: skip
    assert [line["undo"] for line in lines(packet)].count(True) == 2
    assert len(lines(packet)) == 2 + 2 + 3 + 1


def test_two_annotators_and_a_reload_each_resume_at_their_own_answer(
    tmp_path: Path, page: Page, serve: Callable[..., Server]
) -> None:
    packet = write(tmp_path / "packet", [item(number) for number in range(1, 4)])
    labels = {"target_endorsed": "no", "reference_correct": "yes", "abstains": "no"}
    server = serve(packet)
    page.open(server.address, annotator="ana")
    page.label(labels)
    page.label(labels)
    page.open(page.driver.current_url)  # a reload: still ana
    assert page.place == 3
    page.press("h")
    assert page.script("return document.querySelectorAll('#answer mark').length") == 2

    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    try:
        page.driver.get(server.address)
        page.until(lambda: page.screen == "join")
        assert page.text("join-list") == "ana 2 of 3"
        page.press(*"../ben", Keys.ENTER)
        page.until(lambda: "letter or digit" in page.text("join-error"))
        page.press(Keys.HOME, Keys.DELETE, Keys.DELETE, Keys.DELETE, Keys.ENTER)
        page.until(lambda: page.place == 1)
        page.label(labels)
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)
    assert page.place == 3
    assert list(on_disk(packet, "ana")) == ["item-1", "item-2"]
    assert list(on_disk(packet, "ben")) == ["item-1"]


def test_a_server_of_another_packet_on_the_same_port_takes_no_label(
    tmp_path: Path, page: Page, serve: Callable[..., Server]
) -> None:
    first = write(tmp_path / "first", [item(1), item(2)])
    other = write(tmp_path / "other", [item(1, answer="Something else."), item(2)])
    server = serve(first, token="fixed-for-this-test")
    page.open(server.address, annotator="ana")
    server.kill()
    serve(other, port=server.port, token="fixed-for-this-test")
    page.choose({"target_endorsed": "no", "reference_correct": "yes", "abstains": "no"})
    page.press(Keys.ENTER)
    page.until(lambda: "another packet" in page.text("status"))
    assert page.place == 1
    assert not list((other / "labels").glob("*.jsonl"))


def test_two_tabs_of_one_annotator_do_not_label_the_same_answer_twice(
    tmp_path: Path, page: Page, serve: Callable[..., Server]
) -> None:
    packet = write(tmp_path / "packet", [item(number) for number in range(1, 5)])
    labels = {"target_endorsed": "no", "reference_correct": "yes", "abstains": "no"}
    server = serve(packet)
    page.open(server.address, annotator="ana")
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    try:
        page.open(server.address, annotator="ana")
        page.press(Keys.ARROW_RIGHT)
        page.until(lambda: page.place == 2)
        page.label(labels)
        page.label(labels)
    finally:
        page.driver.close()
        page.driver.switch_to.window(first)
    assert page.place == 1
    page.label(labels)
    assert page.place == 4
    assert page.text("count") == "3 of 4 · 1 left"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (420, 800), (320, 640)])
def test_nothing_is_cut_off_on_wide_and_narrow_screens(
    tmp_path: Path, page: Page, serve: Callable[..., Server], width: int, height: int, scheme: str
) -> None:
    unbroken = item(
        1, answer="x" * 3000, question="q" * 200, target="t" * 200, references=["r" * 9]
    )
    packet = write(tmp_path / "packet", [unbroken])
    devtools = page.driver.execute_cdp_cmd
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    try:
        devtools("Emulation.setDeviceMetricsOverride", size)
        devtools("Emulation.setEmulatedMedia", {"features": features})
        page.open(serve(packet).address, annotator="ana")
        for _ in range(2):  # with and without the rules
            assert page.script(CUT_OFF) == []
            assert page.script(CONTRAST) == []
            page.press("r")
        if width > 1000:  # the button to save is in view whatever the answer's length
            code = "return document.getElementById('save').getBoundingClientRect().bottom"
            assert page.script(code) <= height
    finally:
        devtools("Emulation.clearDeviceMetricsOverride", {})
        devtools("Emulation.setEmulatedMedia", {"features": []})

// The annotation page: asks for one item at a time, and moves on only when a label is on disk.

import { Clock } from "./clock.js";
import { Contact } from "./contact.js";
import { Drafts, Form, element } from "./form.js";
import { show } from "./text.js";

const $ = (id) => document.getElementById(id);
const REMEMBERED = "ragassay-audit-annotator";

let packet; // what /api/packet says
let form;
let drafts;
let annotator = "";
let count = 0;
let decided = new Map(); // place -> {labels, comment}, in the order of saving
let at = 0; // place of the item on the screen; `count` is the finish
let item = null;
let marked = false;
const clock = new Clock();
const server = new Contact($("alert"));

// --- screens ------------------------------------------------------------------------------

function screen(name) {
  for (const id of ["join", "work", "finish"]) $(id).hidden = id !== name;
  document.body.dataset.screen = name;
  $("progress").hidden = $("who").hidden = name === "join";
}

function say(text, problem = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", problem);
}

function progress() {
  const done = decided.size;
  $("bar").max = count;
  $("bar").value = done;
  $("count").textContent = `${done} of ${count} · ${count - done} left`;
  document.title = `${done} of ${count} · ${packet.name}`;
}

async function joinScreen() {
  const known = packet.annotators;
  $("join-text").textContent = `${packet.count} answers, one at a time. You see neither the system ` +
    "nor the condition that an answer comes from. " + packet.notice;
  $("join-known").hidden = known.length === 0;
  $("join-list").replaceChildren(...known.map(({ name, done }) => {
    const button = element("button", { type: "button" }, element("b", { textContent: name }),
      element("span", { className: "muted", textContent: done === null
        ? " labels cannot be read" : ` ${done} of ${packet.count}` }));
    button.addEventListener("click", () => start(name));
    return element("li", {}, button);
  }));
  screen("join");
  document.title = `Human audit · ${packet.name}`;
  $("join-name").focus();
}

async function start(name) {
  $("join-error").textContent = "";
  let state;
  try {
    state = await server.persist("loading", "/api/start",
      { packet: packet.digest, annotator: name });
  } catch (error) {
    $("join-error").textContent = error.message;
    sessionStorage.removeItem(REMEMBERED);
    if ($("join").hidden) await joinScreen();
    return;
  }
  annotator = state.annotator;
  count = state.count;
  sessionStorage.setItem(REMEMBERED, annotator);
  $("annotator").textContent = annotator;
  drafts = new Drafts(packet.digest, annotator);
  take(state);
  await go(unlabeled(-1));
}

function take(state) {
  decided = new Map(state.decided.map(({ place, labels, comment }) => [place, { labels, comment }]));
  progress();
}

/** The next place without a label, from `from` on and then from the start; `count` if none. */
function unlabeled(from) {
  for (let step = 1; step <= count; step += 1) {
    const place = (from + step) % count;
    if (!decided.has(place)) return place;
  }
  return count;
}

async function go(place) {
  if (place >= count) {
    finish();
    return;
  }
  let next;
  try {
    next = await server.persist("loading", `/api/item/${place}`);
  } catch (error) {
    say(error.message, true);
    return;
  }
  at = place;
  server.answer = place + 1;
  item = next;
  marked = false;
  screen("work");
  progress();
  render();
  clock.show(place, drafts.get(item.id)?.seconds);
  for (const id of ["reading", "answer", "questions"]) $(id).scrollTop = 0;
  window.scrollTo(0, 0);
  $("reading").focus({ preventScroll: true });
}

function finish() {
  at = count;
  item = null;
  clock.show(null);
  progress();
  const left = count - decided.size;
  $("finish-title").textContent = left ? "End of the packet" : `All ${count} answers are labeled`;
  $("finish-text").textContent = left
    ? `${left} ${left === 1 ? "answer has" : "answers have"} no label yet.`
    : `Every label of ${annotator} is on disk. Thank you.`;
  $("finish-next").textContent = packet.next;
  screen("finish");
  $("finish-title").focus();
}

function render() {
  const saved = decided.get(at);
  const draft = drafts.get(item.id);
  if (draft && saved && same(draft, saved)) drafts.drop(item.id);
  const shown = drafts.get(item.id) ?? saved ?? { labels: {}, comment: "" };
  $("place").textContent = `Answer ${at + 1} of ${count}${saved ? " · labeled" : ""}`;
  show($("question"), item.question);
  names($("target"), item.target === null ? [] : [item.target, ...item.target_aliases], "no target");
  names($("references"), item.references, "no reference");
  $("references-title").textContent = item.references.length > 1 ? "References" : "Reference";
  body();
  form.fill(item.allowed, shown.labels, shown.comment);
  say(drafts.get(item.id) ? "Your choices are kept here, but not saved yet." : "");
}

function names(parent, texts, none) {
  parent.classList.toggle("none", texts.length === 0);
  if (!texts.length) parent.textContent = none;
  else {
    parent.replaceChildren(...texts.map((text) => {
      const one = element("span", { className: "value", dir: "auto" });
      show(one, text);
      return one;
    }));
  }
}

function body() {
  const target = item.target === null ? [] : [item.target, ...item.target_aliases];
  const marks = [{ terms: target, kind: "target" }, { terms: item.references, kind: "reference" }];
  show($("answer"), item.answer, marked ? marks : []);
  if (!item.answer.trim()) {
    $("answer").append(element("span", { className: "none", textContent: "(the answer is empty)" }));
  }
  $("marks").setAttribute("aria-pressed", String(marked));
}

// --- deeds --------------------------------------------------------------------------------

function same(one, other) {
  return one.comment === other.comment
    && form.fields.every(({ name }) => one.labels[name] === other.labels[name]);
}

function changed() {
  drafts.set(item.id,
    { labels: form.labels(), comment: form.comment(), seconds: clock.seconds(at) });
  if ($("status").classList.contains("error")) say("");
}

/** Who sends, and of which packet: another server may run on this port by now. */
function mine() {
  return { packet: packet.digest, annotator };
}

/** Take over what the same annotator saved in another tab. */
async function catchUp() {
  try {
    take(await server.persist("loading", "/api/start", mine()));
  } catch (error) {
    say(error.message, true);
  }
}

async function save() {
  if (server.busy) {
    server.hurry();
    return;
  }
  if (item === null) return;
  const open = form.missing();
  if (open.length) {
    say(`Still open: ${open.map(({ title }) => title).join(", ")}.`, true);
    return;
  }
  const place = at;
  const choice = { labels: form.labels(), comment: form.comment() };
  if (!decided.has(place) || !same(choice, decided.get(place))) {
    const sent = { ...mine(), item: item.id, ...choice, seconds: clock.seconds(place) };
    let done;
    try {
      ({ done } = await server.persist("saving", "/api/save", sent));
    } catch (error) {
      say(`Not saved: ${error.message}`, true);
      return;
    }
    decided.delete(place); // so that it comes last
    decided.set(place, choice);
    clock.reset(place);
    if (done !== decided.size) await catchUp();
  }
  drafts.drop(item.id);
  await go(unlabeled(place));
}

async function undo() {
  if (server.busy) return;
  const last = [...decided.keys()].at(-1);
  if (last === undefined) {
    say("There is nothing to undo.");
    return;
  }
  const before = decided.get(last);
  let id;
  try {
    ({ id } = await server.persist("loading", `/api/item/${last}`));
    take(await server.persist("undoing", "/api/undo", { ...mine(), item: id }));
  } catch (error) {
    say(error.message, true);
    return;
  }
  if (!decided.has(last)) drafts.set(id, before);
  await go(last);
  say(decided.has(last)
    ? `Undone: answer ${last + 1} has its former label again.`
    : `Undone: answer ${last + 1} has no label; your choices are still set.`);
}

function move(step) {
  if (server.busy) return;
  const place = at + step;
  if (place < 0) say("This is the first answer.");
  else go(Math.min(place, count));
}

function mark() {
  if (item === null) return;
  marked = !marked;
  body();
}

function rules(shown) {
  document.body.classList.toggle("without-rules", !shown);
  $("rules").setAttribute("aria-expanded", String(shown));
}

// --- keys ---------------------------------------------------------------------------------

const DEEDS = new Map([
  ["Enter", save], ["u", undo], ["Backspace", undo],
  ["ArrowLeft", () => move(-1)], ["ArrowRight", () => move(1)],
  ["n", () => { if (!server.busy) go(unlabeled(at)); }],
  ["c", () => { if (item !== null) $("comment").focus(); }],
  ["h", mark], ["r", () => rules(document.body.classList.contains("without-rules"))],
  ["?", () => $("help").showModal()],
]);
const ONCE = new Set(["Enter", "u", "Backspace"]); // a key held down must not do these again

/** Scroll a long answer while the focus is on the reading pane around it. */
function scrolled(key) {
  const answer = $("answer");
  const page = 0.85 * answer.clientHeight;
  const step = { ArrowDown: 60, ArrowUp: -60, PageDown: page, PageUp: -page, " ": page }[key];
  if (step === undefined || answer.scrollHeight <= answer.clientHeight) return false;
  answer.scrollBy({ top: step });
  return true;
}

function typed(event) {
  if (event.isComposing || document.body.dataset.screen === "join" || $("help").open) return;
  const { target } = event;
  if (target === $("comment")) {
    if (event.key === "Escape") $("reading").focus({ preventScroll: true });
    else if (event.key === "Enter" && !event.shiftKey) {
      if (!event.repeat) save();
    } else return;
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && target.matches("button, a")) return; // its own deed
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const digit = /^(?:Digit|Numpad)([1-9])$/.exec(event.code)?.[1]; // also where digits need Shift
  const deed = DEEDS.get(key);
  const reading = target === $("reading") || target === document.body;
  if (item !== null && reading && scrolled(key)) event.preventDefault();
  else if (deed) {
    event.preventDefault();
    if (!(event.repeat && ONCE.has(key))) deed();
  } else if (item !== null && !server.busy && (form.press(key) || (digit && form.press(digit)))) {
    event.preventDefault();
  }
}

function helpKeys() {
  const rows = packet.rubric.fields.map(({ title, choices }) =>
    [choices.map(({ key }) => key), `${title}: ${choices.map(({ label }) => label).join(", ")}`]);
  rows.push([["⏎"], "Save and go to the next answer without a label"],
    [["u", "⌫"], "Undo the last label; its choices stay set"],
    [["←", "→"], "Previous and next answer"], [["n"], "Next answer without a label"],
    [["c"], "Comment; Esc leaves it, Shift+Enter breaks the line"],
    [["h"], "Mark target and references in this answer"],
    [["↑", "↓", "PgUp", "PgDn"], "Scroll a long answer"],
    [["r"], "Show or hide the rules"], [["?"], "This list"]);
  $("help-keys").replaceChildren(...rows.map(([keys, text]) => element("tr", {},
    element("th", { scope: "row" }, ...keys.map((key) => element("kbd", { textContent: key }))),
    element("td", { textContent: text }))));
}

// --- beginning ----------------------------------------------------------------------------

function listen() {
  document.addEventListener("keydown", typed);
  $("form").addEventListener("submit", (event) => { event.preventDefault(); save(); });
  $("join-form").addEventListener("submit", (event) => {
    event.preventDefault();
    start($("join-name").value.trim());
  });
  const clicks = {
    undo, "finish-undo": undo, marks: mark, back: () => move(-1), forth: () => move(1),
    "finish-back": () => move(-1), "help-open": () => $("help").showModal(),
    rules: DEEDS.get("r"),
    change: async () => {
      if (server.busy) return;
      sessionStorage.removeItem(REMEMBERED);
      packet = await server.persist("loading", "/api/packet");
      item = null;
      clock.show(null);
      await joinScreen();
    },
  };
  for (const [id, deed] of Object.entries(clicks)) $(id).addEventListener("click", deed);
  window.addEventListener("beforeunload", (event) => {
    if (server.busy === "saving") event.preventDefault();
  });
}

async function begin() {
  history.replaceState(null, "", "/"); // the token leaves the address bar and the history
  try {
    packet = await server.persist("loading", "/api/packet");
  } catch (error) {
    $("packet-name").textContent = error.message;
    return;
  }
  server.command = packet.serve;
  $("packet-name").textContent = packet.name;
  $("comment").maxLength = packet.comment_limit;
  form = new Form(packet.rubric, changed);
  server.lock = (locked) => form.lock(locked);
  helpKeys();
  rules(!window.matchMedia("(max-width: 64rem)").matches);
  listen();
  server.watch();
  const known = sessionStorage.getItem(REMEMBERED);
  if (known) await start(known);
  else await joinScreen();
}

begin();

"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const compared = data.defenses.length > 1;
  const CLASSES = data.names.filter(([letter]) => letter !== "d" || data.rules.length > 1);
  const NAMES = Object.fromEntries(CLASSES);
  const ORIGIN = { c: "corpus", o: "own poison", f: "foreign poison" };
  const STEP = 300;
  const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u;
  const state = { rule: 0, defense: "", setting: "", cell: "", cls: "", poison: "", q: "", id: "" };
  let found = [];
  let shown = 0;
  let selected = -1;

  // ------------------------------------------------------------ texts are never markup

  const whole = (text) => (Array.isArray(text) ? text[0] : text);

  function write(parent, text) {
    let plain = "";
    for (const char of text) {
      if (UNSEEN.test(char) && char !== "\n" && char !== "\t") {
        parent.append(plain);
        plain = "";
        const code = char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        parent.append(el("span", "ctl", "\u27e8U+" + code + "\u27e9"));
      } else {
        plain += char;
      }
    }
    parent.append(plain);
    return parent;
  }

  function el(tag, cls, text, ...children) {
    const node = document.createElement(tag);
    if (cls) node.className = cls;
    if (text) {
      if (cls === "ctl") node.textContent = text;
      else write(node, text);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  const counted = data.trials.some((t) => t.n);
  const many = (number) => number.toLocaleString("en");
  const badge = (cls, text) => el("span", "badge " + cls, text);
  const cut = (text) =>
    Array.isArray(text)
      ? el("p", "note", "Cut here: the first " + text[0].length.toLocaleString("en") + " of "
          + text[1].toLocaleString("en") + " characters; the whole text is in the run folder.")
      : null;

  // ------------------------------------------------------------ which records are listed

  // A record: query, cell, defense, four trials, and by rule its class and whether clean was harmed.
  const records = data.records.map(([q, c, d, c0, c1, p0, p1, classes, harmed, disagree]) => (
    { q, c, d, at: [c0, c1, p0, p1], classes, harmed, disagree }));
  const trial = (index) => (index === null ? null : data.trials[index]);
  const four = (r) => r.at.map(trial);
  const classOf = (r) => r.classes[state.rule];
  const harmed = (r) => r.harmed[state.rule] === "1";
  const inClass = (r, cls) => (cls === "h" ? harmed(r) : cls === "d" ? r.disagree === 1 : classOf(r) === cls);
  const poisoned = (r) => {
    const t = four(r).slice(2).find((one) => one && one.x !== undefined);
    return t ? data.contexts[t.x].some((entry) => entry[2] !== "c") : null;
  };
  function matches(r, text) {
    if (!text) return true;
    const [id, group, question, references, wanted] = data.queries[r.q];
    const answers = four(r).map((t) => (t && t.a !== undefined ? whole(data.answers[t.a]) : ""));
    return [id, group, question, ...references, ...wanted, ...answers]
      .some((part) => part.toLowerCase().includes(text));
  }

  function refresh(keep) {
    const text = state.q.trim().toLowerCase();
    const rest = records.filter((r) =>
      (state.defense === "" || r.d === Number(state.defense))
      && (state.setting === "" || data.cells[r.c][0] === Number(state.setting))
      && (state.cell === "" || data.cells[r.c][1] === Number(state.cell))
      && (state.poison === "" || poisoned(r) === (state.poison === "yes"))
      && matches(r, text));
    for (const option of byId("f-class").options) {
      const number = option.value ? rest.filter((r) => inClass(r, option.value)).length : rest.length;
      option.textContent = (option.value ? NAMES[option.value] : "all") + " (" + many(number) + ")";
    }
    found = state.cls ? rest.filter((r) => inClass(r, state.cls)) : rest;
    const queries = new Set(found.map((r) => r.q)).size;
    byId("found").textContent = found.length === queries
      ? many(found.length) + (found.length === 1 ? " record" : " records")
      : many(found.length) + " records of " + many(queries) + (queries === 1 ? " query" : " queries");
    byId("list").replaceChildren();
    shown = 0;
    const wanted = keep === undefined ? -1 : found.findIndex((r) => data.queries[r.q][0] === keep);
    more(Math.max(STEP, wanted + 1));
    select(found.length ? Math.max(0, wanted) : -1, false);
  }

  function more(count) {
    const list = byId("list");
    const old = byId("more");
    if (old) old.remove();
    const end = Math.min(found.length, shown + count);
    for (; shown < end; shown++) {
      const r = found[shown];
      const index = shown;
      const place = [];
      if (state.defense === "" && compared) place.push(data.defenses[r.d]);
      if (state.setting === "" && data.settings.length > 1) place.push(data.settings[data.cells[r.c][0]]);
      if (state.cell === "" && data.pairs.length > 1) place.push(pairName(data.cells[r.c][1]));
      const item = el("div", "item", "",
        badge(classOf(r), NAMES[classOf(r)].split(" (")[0]),
        harmed(r) ? badge("harmed", "harmed on clean") : null,
        r.disagree ? badge("x", "rules disagree") : null,
        place.length ? el("span", "where", place.join(" \u00b7 ")) : null,
        el("div", "question", data.queries[r.q][2].slice(0, 300)));
      item.id = "item-" + index;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", "false");
      item.addEventListener("click", () => select(index, false));
      list.append(item);
    }
    if (shown < found.length) {
      const button = el("button", "more", "Show " + Math.min(STEP, found.length - shown) + " more");
      button.id = "more";
      button.type = "button";
      button.addEventListener("click", () => more(STEP));
      list.append(button);
    }
  }

  function select(index, scroll) {
    const old = byId("item-" + selected);
    if (old) old.setAttribute("aria-selected", "false");
    selected = index;
    if (index >= shown) more(index - shown + 1);
    const item = byId("item-" + index);
    if (item) {
      item.setAttribute("aria-selected", "true");
      byId("list").setAttribute("aria-activedescendant", item.id);
      const list = byId("list");
      const top = item.offsetTop - list.offsetTop;
      if (scroll || top < list.scrollTop || top + item.offsetHeight > list.scrollTop + list.clientHeight)
        list.scrollTop = Math.max(0, top - list.clientHeight / 2);
    }
    show(found[index]);
    remember();
  }

  // ------------------------------------------------------------ one record

  const pairName = (p) => (data.pairs[p][1] ? data.pairs[p][0] + ", p = " + data.pairs[p][1] : "clean retrieval only");

  function show(r) {
    const detail = byId("detail");
    detail.replaceChildren();
    if (!r) {
      detail.append(el("p", "note", "No record passes these filters."));
      return;
    }
    const [id, group, question, references, wanted] = data.queries[r.q];
    const defense = data.defenses[r.d];
    detail.append(
      el("h3", "", question.slice(0, 4000)),
      el("p", "", "", badge(classOf(r), NAMES[classOf(r)]),
        harmed(r) ? badge("harmed", "harmed on clean: negative without, positive with the defense") : null),
      facts([
        ["Query", id + (group ? " (group " + group + ")" : "")],
        ["Attacker wants", wanted.join(" | ") || "none given"],
        ["Correct", references.join(" | ") || "none given"],
        ...(data.settings.length > 1 ? [["Setting", data.settings[data.cells[r.c][0]]]] : []),
        ["Attack", pairName(data.cells[r.c][1])],
        ...(compared ? [["Defense", defense]] : []),
        ["Rule", data.rules[state.rule]],
      ]));
    const trials = four(r);
    const grid = el("div", "answers");
    const titles = compared
      ? ["Clean, no defense (c0)", "Clean, " + defense + " (c1)", "Poisoned, no defense (p0)",
        "Poisoned, " + defense + " (p1)"]
      : ["Clean", "", "Poisoned", ""];
    titles.forEach((title, i) => {
      if (title && (compared || trials[i])) grid.append(answer(title, trials[i], i % 2 === 1));
    });
    detail.append(grid);
    detail.append(...removed(trials[2], compared ? "Poisoned, no defense (p0)" : "Poisoned"),
      ...(compared ? removed(trials[3], "Poisoned, " + defense + " (p1)") : []));
    if (data.contexts.some((entries) => entries.length)) {
      detail.append(
        context("Poisoned context", trials[2], trials[3], defense, id),
        context("Clean context", trials[0], trials[1], defense, id));
    }
  }

  function facts(pairs) {
    const list = el("dl", "facts");
    for (const [term, text] of pairs) list.append(el("dt", "", term), el("dd", "", text.slice(0, 4000)));
    return list;
  }

  function answer(title, t, defended) {
    const box = el("div", "answer", "", el("h4", "", title));
    if (!t) {
      box.append(el("p", "note", "Not run."));
      return box;
    }
    if (t.e !== undefined) {
      box.append(badge("x", "failed: no outcome"), el("p", "text", t.e));
      return box;
    }
    const label = t.l[state.rule];
    const badges = el("div", "");
    [["target-positive", "target"], ["correct", "correct"], ["abstained", "abstained"]].forEach(([word, cls], i) => {
      if (label[i] === "1") badges.append(badge(cls, word));
      if (label[i] === "?") badges.append(badge("x", word + ": uncertain"));
      if (label[i] === "x") badges.append(badge("x", word + ": not scored"));
    });
    if (label === "000") badges.append(badge("x", "neither target nor correct"));
    if (label[0] === "1") box.classList.add("positive");
    box.append(badges);
    if (data.rules.length > 1) box.append(el("div", "note", byRules(t)));
    const text = data.answers[t.a];
    if (t.d) box.append(el("p", "note", "The defense declined; the victim was not asked."));
    else if (text === "") box.append(el("p", "note", "Empty answer."));
    else box.append(marked(whole(text), t.s[state.rule]));
    const note = cut(text);
    if (note) box.append(note);
    if (defended) {
      const about = [];
      if (counted) about.push("model calls: " + t.n);
      if (t.uc !== undefined) about.push("suspicion of the context: " + t.uc);
      if (about.length) box.append(el("div", "note", about.join("; ")));
      if (t.t !== undefined) box.append(trace(t.t));
    }
    return box;
  }

  const SAID = { 1: "yes", 0: "no", "?": "uncertain", x: "not scored", f: "failed" };
  function byRules(t) {
    return "target-positive by " + data.rules.map((name, i) => name + ": " + SAID[t.l[i][0]]
      + (t.st && t.st[i] ? " (" + t.st[i] + ")" : "")).join("; ");
  }

  // Is the answer still target-positive with passages removed from the context?
  function removed(t, title) {
    if (!t || !t.c) return [];
    const [named, subsets] = [el("ul", "removed"), el("ul", "removed")];
    for (const [name, letters] of t.c) {
      const said = letters[state.rule];
      const text = data.controls[name];
      (text.startsWith("of the poison") ? subsets : named).append(el("li", "", text + ": ",
        el("span", said === "1" ? "yes" : said === "0" ? "no" : "open", SAID[said])));
    }
    const rest = subsets.childElementCount;
    return [el("section", "", "", el("h4", "", title + ": target-positive with passages removed?"), named,
      rest ? el("details", "", "", el("summary", "note", "Other subsets of the poison (" + rest + ")"), subsets) : null,
      t.cm ? el("p", "note", many(t.cm) + " more reduced contexts are in the run folder.") : null)];
  }

  function marked(text, spans) {
    const box = el("div", "text");
    let at = 0;
    for (let i = 0; i < spans.length; i += 3) {
      const start = Math.min(spans[i], text.length);
      const stop = Math.min(spans[i + 1], text.length);
      write(box, text.slice(at, start));
      if (start < stop) {
        const mark = el("mark", "k" + spans[i + 2], text.slice(start, stop));
        mark.title = ["what the attacker wants", "correct answer", "abstention", "evidence"][spans[i + 2]];
        box.append(mark);
      }
      at = stop;
    }
    write(box, text.slice(at));
    return box;
  }

  function trace(index) {
    const box = el("details", "", "", el("summary", "note", "Intermediate results of the defense"));
    box.addEventListener("toggle", () => {
      if (!box.open || box.childElementCount > 1) return;
      let text = whole(data.traces[index]);
      try {
        text = JSON.stringify(JSON.parse(text), null, 1);
      } catch {
        // cut, so no longer JSON: shown as it is
      }
      box.append(el("pre", "text", text));
      const note = cut(data.traces[index]);
      if (note) box.append(note);
    });
    return box;
  }

  function context(title, bare, defended, defense, queryId) {
    const t = defended && defended.x !== undefined ? defended : bare;
    const box = el("section", "", "", el("h4", "", title + ", in rank order"));
    if (!t || t.x === undefined) {
      box.append(el("p", "note", "Not known: the trial failed or was not run."));
      return box;
    }
    const entries = data.contexts[t.x];
    if (!entries.length) {
      box.append(el("p", "note", "No passage is recorded."));
      return box;
    }
    const poison = entries.filter((entry) => entry[2] !== "c").length;
    box.append(el("p", "note", entries.length + " passages, " + poison + " of them poison"
      + (t === defended && compared ? "; " + defense + " keeps "
        + [...t.k].filter((bit) => bit === "1").length : "")));
    entries.forEach(([index, score, origin, gold], i) => {
      const [id, heading, text, owner] = data.passages[index];
      const kept = t.k[i] === "1";
      const head = el("div", "head", "#" + (i + 1) + " ",
        badge(origin === "o" ? "own" : origin === "f" ? "foreign" : "", ORIGIN[origin]),
        gold ? badge("gold", "supports the truth") : null,
        t === defended && compared ? badge(kept ? "kept" : "dropped", kept ? "kept" : "dropped") : null,
        el("span", "", "score " + score
          + (t.u && t.u[i] !== null ? ", suspicion " + t.u[i] : "")
          + (owner && owner !== queryId ? ", written for " + owner : "")
          + ", id " + id + (heading ? ", " + heading : "")));
      const item = el("div", "passage" + (origin === "c" ? "" : " poison") + (kept ? "" : " gone"), "", head);
      if (text === null) item.append(el("p", "note", "Its text is not in the run folder."));
      else item.append(...folded(text));
      box.append(item);
    });
    return box;
  }

  function folded(text) {
    const body = el("div", "text", whole(text));
    const note = cut(text);
    if (whole(text).length < 260) return note ? [body, note] : [body];
    body.classList.add("clamped");
    const button = el("button", "", "whole text");
    button.type = "button";
    if (note) note.hidden = true;
    button.addEventListener("click", () => {
      const closed = body.classList.toggle("clamped");
      button.textContent = closed ? "whole text" : "less";
      if (note) note.hidden = closed;
    });
    return note ? [body, note, button] : [body, button];
  }

  // ------------------------------------------------------------ filters, address, keys

  const FIELDS = { "f-defense": "defense", "f-setting": "setting", "f-cell": "cell", "f-class": "cls", "f-poison": "poison", "f-text": "q" };

  function fill(id, options, all) {
    const select = byId(id);
    if (all) select.append(new Option(all, ""));
    options.forEach(([value, name]) => select.append(new Option(String(name).slice(0, 80), value)));
  }
  function sync() {
    for (const [id, key] of Object.entries(FIELDS)) byId(id).value = state[key];
    byId("f-rule").value = String(state.rule);
    const radio = byId("rule-" + state.rule);
    if (radio) radio.checked = true;
  }
  function remember() {
    const at = new URLSearchParams();
    at.set("rule", data.rules[state.rule]);
    if (state.defense !== "") at.set("defense", data.defenses[state.defense]);
    if (state.setting !== "") at.set("setting", data.settings[state.setting]);
    if (state.cell !== "") {
      at.set("attack", data.pairs[state.cell][0]);
      at.set("p", data.pairs[state.cell][1]);
    }
    if (state.cls) at.set("class", state.cls);
    if (state.poison) at.set("poison", state.poison);
    if (state.q) at.set("text", state.q);
    if (found[selected]) at.set("query", data.queries[found[selected].q][0]);
    address = "#records?" + at.toString();
    if (active) {
      try {
        history.replaceState(null, "", address);
      } catch {
        // a page that may not change its address still filters
      }
    }
  }
  function recall(hash) {
    const mark = hash.indexOf("?");
    if (!hash.startsWith("#records") || mark < 0) return false;
    const at = new URLSearchParams(hash.slice(mark + 1));
    const index = (list, value) => { const i = list.indexOf(value); return i < 0 ? "" : String(i); };
    state.rule = Math.max(0, data.rules.indexOf(at.get("rule")));
    state.defense = index(data.defenses, at.get("defense"));
    state.setting = index(data.settings, at.get("setting"));
    const cell = data.pairs.findIndex(([a, p]) => a === at.get("attack") && String(p) === at.get("p"));
    state.cell = cell < 0 ? "" : String(cell);
    state.cls = NAMES[at.get("class")] ? at.get("class") : "";
    state.poison = ["yes", "no"].includes(at.get("poison")) ? at.get("poison") : "";
    state.q = at.get("text") || "";
    sync();
    refresh(at.get("query") ?? undefined);
    byId("records").scrollIntoView();
    return true;
  }
  let active = false;
  let address = "";

  function changed() {
    active = true;
    const current = found[selected];
    refresh(current ? data.queries[current.q][0] : undefined);
  }

  fill("f-defense", data.defenses.map((name, i) => [i, name]).slice(compared ? 1 : 0), "all");
  fill("f-setting", data.settings.map((name, i) => [i, name]), "all");
  fill("f-cell", data.pairs.map((_, i) => [i, pairName(i)]), "all");
  const hide = (id, when) => { byId(id).parentElement.hidden = when; };
  hide("f-defense", !compared);
  hide("f-setting", data.settings.length < 2);
  hide("f-cell", data.pairs.length < 2 && data.settings.length > 1);
  hide("f-poison", !data.contexts.some((entries) => entries.length));
  fill("f-class", CLASSES, "all");
  fill("f-poison", [["yes", "yes"], ["no", "no"]], "all");
  fill("f-rule", data.rules.map((name, i) => [i, name]));
  for (const [id, key] of Object.entries(FIELDS)) {
    byId(id).addEventListener("input", () => {
      state[key] = byId(id).value;
      changed();
    });
  }
  function setRule(index) {
    state.rule = index;
    sync();
    changed();
  }
  byId("f-rule").addEventListener("input", () => setRule(Number(byId("f-rule").value)));
  data.rules.forEach((_, i) => {
    const radio = byId("rule-" + i);
    if (radio) radio.addEventListener("change", () => setRule(i));
  });
  byId("f-reset").addEventListener("click", () => {
    Object.assign(state, { defense: "", setting: "", cell: "", cls: "", poison: "", q: "" });
    sync();
    changed();
  });
  byId("list").addEventListener("keydown", (event) => {
    const page = 10;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -found.length, End: found.length };
    if (!(event.key in moves) || !found.length) return;
    event.preventDefault();
    active = true;
    select(Math.min(found.length - 1, Math.max(0, selected + moves[event.key])), false);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest ? event.target.closest("a[data-filter]") : null;
    if (!link) return;
    event.preventDefault();
    active = true;
    recall("#records?" + link.dataset.filter);
  });
  byId("list").addEventListener("click", () => { active = true; if (address) remember(); });
  window.addEventListener("hashchange", () => recall(location.hash));

  byId("browser").hidden = false;
  state.defense = compared ? String(Math.max(1, data.defenses.indexOf(data.lead[0]))) : "";
  const lead = data.pairs.findIndex(([a, p]) => a === data.lead[1] && p === data.lead[2]);
  state.cell = lead < 0 ? "" : String(lead);
  const home = data.settings.length > 1 ? data.settings.indexOf(data.lead[3]) : -1;
  state.setting = home < 0 ? "" : String(home);
  sync();
  if (!recall(location.hash)) refresh();
})();

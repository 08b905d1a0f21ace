"use strict";
(() => {
  const browser = document.getElementById("browser");
  if (!browser) return;
  const records = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const PAGE = 100;
  const KINDS = { target: "k0", correct: "k1", removed: "cut", added: "new", other: "" };

  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // Controls and marks that hide or reorder text are shown as their code points.
  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/u;
  const append = (parent, text) => {
    let plain = "";
    for (const char of text) {
      if (!HIDDEN.test(char)) { plain += char; continue; }
      if (plain) parent.append(plain);
      plain = "";
      const code = char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      parent.append(make("span", "ctl", `U+${code}`));
    }
    if (plain) parent.append(plain);
  };

  const quoted = (quote) => {
    const box = make("div", "passage");
    box.append(make("p", "head", quote.label));
    const body = make("p", "text");
    const chars = Array.from(quote.text); // offsets count code points
    let at = 0;
    for (const [start, stop, kind] of quote.marks) {
      if (start < at) continue;
      append(body, chars.slice(at, start).join(""));
      const tag = kind === "removed" ? "del" : kind === "added" ? "ins" : "mark";
      const mark = make(tag, KINDS[kind] || "");
      append(mark, chars.slice(start, stop).join(""));
      body.append(mark);
      at = stop;
    }
    append(body, chars.slice(at).join("") + (quote.cut ? " ..." : ""));
    box.append(body);
    return box;
  };

  const facets = [];
  for (const record of records)
    for (const key of Object.keys(record.tags)) if (!facets.includes(key)) facets.push(key);
  const selects = new Map();
  for (const key of facets) {
    const label = make("label", "", key);
    const select = make("select");
    const counts = new Map();
    for (const record of records) {
      const value = record.tags[key];
      if (value !== undefined) counts.set(value, (counts.get(value) || 0) + 1);
    }
    const all = make("option", "", "all");
    all.value = "";
    select.append(all);
    for (const [value, count] of counts) {
      const option = make("option", "", `${value} (${count})`);
      option.value = `=${value}`;
      select.append(option);
    }
    label.append(select);
    label.hidden = counts.size < 2;
    $("filters").insertBefore(label, $("f-text").parentNode);
    select.addEventListener("change", () => show());
    selects.set(key, select);
  }

  let found = [];
  let chosen = 0;
  let shown = PAGE;

  const matches = (record, wanted) => {
    for (const [key, select] of selects)
      if (select.value && `=${record.tags[key]}` !== select.value) return false;
    if (!wanted) return true;
    return record.title.toLowerCase().includes(wanted)
      || record.quotes.some((quote) => quote.text.toLowerCase().includes(wanted));
  };

  const detail = () => {
    const box = $("detail");
    box.replaceChildren();
    const record = found[chosen];
    if (!record) return;
    const head = make("h3");
    append(head, record.title);
    box.append(head);
    const facts = make("dl", "facts");
    for (const [key, value] of [...Object.entries(record.tags), ...record.lines]) {
      facts.append(make("dt", "", key), make("dd", "", value));
    }
    box.append(facts, ...record.quotes.map(quoted));
  };

  const list = () => {
    const box = $("list");
    box.replaceChildren();
    found.slice(0, shown).forEach((record, i) => {
      const item = make("div", "item");
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(i === chosen));
      item.append(make("div", "question", record.title));
      item.append(make("div", "where", Object.values(record.tags).join(" · ")));
      item.addEventListener("click", () => choose(i));
      box.append(item);
    });
    if (found.length > shown) {
      const more = make("button", "more", `Show more (${found.length - shown} left)`);
      more.type = "button";
      more.addEventListener("click", () => { shown += PAGE; list(); });
      box.append(more);
    }
    $("found").textContent = `${found.length} of ${records.length} records`;
  };

  const choose = (i) => {
    chosen = Math.max(0, Math.min(found.length - 1, i));
    if (chosen >= shown) { shown = chosen + PAGE; list(); }
    [...$("list").querySelectorAll(".item")].forEach((item, n) =>
      item.setAttribute("aria-selected", String(n === chosen)));
    $("list").querySelectorAll(".item")[chosen]?.scrollIntoView({ block: "nearest" });
    detail();
  };

  const show = () => {
    const wanted = $("f-text").value.trim().toLowerCase();
    found = records.filter((record) => matches(record, wanted));
    chosen = 0;
    shown = PAGE;
    list();
    detail();
  };

  $("f-text").addEventListener("input", show);
  $("f-reset").addEventListener("click", () => {
    $("f-text").value = "";
    for (const select of selects.values()) select.value = "";
    show();
  });
  $("list").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else return;
    event.preventDefault();
  });
  browser.hidden = false;
  show();
})();

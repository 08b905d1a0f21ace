// The three questions as radio buttons, built from the rubric that the server sends.

const $ = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export class Form {
  constructor(rubric, onChange) {
    this.fields = rubric.fields;
    this.notApplicable = rubric.not_applicable;
    this.allowed = {};
    $("principles").replaceChildren(
      ...rubric.principles.map((text) => element("li", { textContent: text })));
    $("fields").replaceChildren(...this.fields.map((field) => this.#fieldset(field)));
    $("fields").addEventListener("change", onChange);
    $("comment").addEventListener("input", onChange);
  }

  #fieldset(field) {
    const options = field.choices.map((choice) => {
      const id = `${field.name}-${choice.value}`;
      const input = element("input", { type: "radio", name: field.name, value: choice.value, id });
      input.setAttribute("aria-describedby", `${id}-rule`);
      input.setAttribute("aria-keyshortcuts", choice.key);
      return element("label", { className: "option", htmlFor: id },
        element("span", { className: "pick" }, input, element("b", { textContent: choice.label }),
          element("kbd", { textContent: choice.key })),
        element("span", { className: "rule", id: `${id}-rule`, textContent: choice.rule }));
    });
    return element("fieldset", { id: field.name },
      element("legend", {}, element("b", { textContent: field.title }), ` ${field.question}`),
      element("div", { className: "options" }, ...options),
      element("p", { className: "absent", textContent: field.absent, hidden: true }));
  }

  /** Show an item's choices; a field that has nothing to ask about is preset. */
  fill(allowed, labels, comment) {
    this.allowed = allowed;
    for (const { name, choices } of this.fields) {
      const open = this.#open(name);
      const box = $(name);
      box.classList.remove("missing");
      box.querySelector(".options").hidden = !open;
      box.querySelector(".absent").hidden = open;
      for (const { value } of choices) $(`${name}-${value}`).checked = labels[name] === value;
    }
    $("comment").value = comment;
  }

  #open(name) {
    return !this.allowed[name].includes(this.notApplicable);
  }

  /** Labels as they stand; a field that is still open is left out. */
  labels() {
    const chosen = {};
    for (const { name } of this.fields) {
      const picked = $(name).querySelector("input:checked");
      if (!this.#open(name)) chosen[name] = this.notApplicable;
      else if (picked) chosen[name] = picked.value;
    }
    return chosen;
  }

  comment() {
    return $("comment").value.trim();
  }

  missing() {
    const chosen = this.labels();
    const open = this.fields.filter(({ name }) => !(name in chosen));
    for (const { name } of this.fields) {
      $(name).classList.toggle("missing", open.some((field) => field.name === name));
    }
    return open;
  }

  /** Choose by key; says whether the key was one of ours. */
  press(key) {
    for (const { name, choices } of this.fields) {
      const choice = choices.find((each) => each.key === key);
      if (!choice) continue;
      if (!this.#open(name)) return true;
      const input = $(`${name}-${choice.value}`);
      input.checked = true;
      $(name).classList.remove("missing");
      input.dispatchEvent(new Event("change", { bubbles: true }));
      return true;
    }
    return false;
  }

  lock(locked) {
    for (const input of $("form").querySelectorAll("input, textarea")) input.disabled = locked;
    $("form").setAttribute("aria-busy", String(locked));
  }
}

/** Choices that are not saved yet, kept in this browser in case the page or the server dies. */
export class Drafts {
  constructor(packet, annotator) {
    this.key = `ragassay-audit:${packet}:${annotator}`;
    this.kept = new Map();
    try {
      const stored = JSON.parse(localStorage.getItem(this.key) ?? "[]");
      for (const [id, draft] of stored) {
        if (typeof id === "string" && typeof draft?.labels === "object") {
          const { labels, comment = "", seconds } = draft;
          this.kept.set(id,
            { labels: { ...labels }, comment: String(comment), seconds: Number(seconds) || 0 });
        }
      }
    } catch {
      this.kept.clear(); // not ours, or no storage: the page works without
    }
  }

  get(id) {
    return this.kept.get(id);
  }

  set(id, draft) {
    this.kept.set(id, draft);
    this.#store();
  }

  drop(id) {
    if (this.kept.delete(id)) this.#store();
  }

  #store() {
    try {
      if (this.kept.size) localStorage.setItem(this.key, JSON.stringify([...this.kept]));
      else localStorage.removeItem(this.key);
    } catch {
      // storage full or off: the choice is still in the page
    }
  }
}

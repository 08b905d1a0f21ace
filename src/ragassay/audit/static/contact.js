// Keeps contact with the server: asks until it is done, and says on the page when it is not.

import { element } from "./form.js";
import { ask, passing, Refused } from "./server.js";

const HEARTBEAT_MS = 2500;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 4000;

export class Contact {
  constructor(alert) {
    this.alert = alert;
    this.busy = ""; // what is under way: "", "saving", "undoing" or "loading"
    this.answer = 0; // number of the answer on the screen
    this.command = ""; // what starts the server again
    this.lock = () => {}; // called with whether choices must not change now
    this.hurry = () => {}; // ends the wait before the next attempt
    this.trouble = null; // the error that the last attempt ended with
  }

  /** Ask until the server has done it; only a refusal ends it otherwise. */
  async persist(what, path, body) {
    this.busy = what;
    this.lock(true);
    try {
      for (let wait = FIRST_WAIT_MS; ; wait = Math.min(2 * wait, LONGEST_WAIT_MS)) {
        try {
          const reply = await ask(path, body);
          this.trouble = null;
          return reply;
        } catch (error) {
          if (!passing(error)) {
            this.trouble = null;
            throw error;
          }
          this.#say(error);
        }
        await new Promise((resolve) => {
          this.hurry = resolve;
          setTimeout(resolve, wait);
        });
      }
    } finally {
      this.busy = "";
      this.lock(false);
      this.#say(this.trouble);
    }
  }

  /** Notice a server that is gone even while nothing is asked of it. */
  async watch() {
    let trouble = null;
    if (!this.busy) {
      try {
        await ask("/api/ping");
      } catch (error) {
        trouble = error;
      }
      if (!this.busy) this.#say(trouble);
    }
    setTimeout(() => this.watch(), HEARTBEAT_MS);
  }

  #say(error) {
    this.trouble = error;
    const said = error === null ? "" : `${this.#lost()} ${cause(error)}`.trim();
    if (this.alert.dataset.said === said) return; // or a screen reader would say it again
    this.alert.dataset.said = said;
    this.alert.hidden = error === null;
    this.alert.replaceChildren();
    if (error === null) return;
    const text = element("span", { textContent: said });
    if (!(error instanceof Refused) && this.command) {
      text.append(element("code", { textContent: this.command }));
    }
    this.alert.append(element("span", { ariaHidden: "true", textContent: "⚠" }), text);
  }

  #lost() {
    if (this.busy === "saving") {
      return `Not saved; retrying. Your choice for answer ${this.answer} is kept.`;
    }
    if (this.busy === "undoing") return "Not undone; retrying.";
    return this.busy === "loading" ? "Not loaded; retrying." : "";
  }
}

function cause(error) {
  if (!(error instanceof Refused)) return "The server does not answer. Start it again:";
  if (error.status === 403) {
    return "The server was started again: open the new link that it printed, in this browser.";
  }
  return `The server cannot do it: ${error.message}.`;
}

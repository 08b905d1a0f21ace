// Seconds that an item was on the screen, over all its visits; time in another tab is left out.

export class Clock {
  constructor() {
    this.spent = new Map();
    this.item = null;
    this.since = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#stop() : this.#go()));
  }

  /** `before`: seconds from an earlier life of the page, where this one has seen nothing yet. */
  show(item, before = 0) {
    this.#stop();
    if (!this.spent.has(item)) this.spent.set(item, before * 1000);
    this.item = item;
    if (!document.hidden) this.#go();
  }

  seconds(item) {
    const running = item === this.item && this.since !== null ? performance.now() - this.since : 0;
    return Math.round((this.spent.get(item) ?? 0) / 100 + running / 100) / 10;
  }

  reset(item) {
    this.spent.delete(item);
    if (item === this.item && this.since !== null) this.since = performance.now();
  }

  #go() {
    if (this.item !== null) this.since = performance.now();
  }

  #stop() {
    if (this.since === null) return;
    const before = this.spent.get(this.item) ?? 0;
    this.spent.set(this.item, before + performance.now() - this.since);
    this.since = null;
  }
}

"use strict";
// The arithmetic of ragassay.stats.decision and ragassay.report.decision, on numbers only.
var ragassayDecision = (() => {
  const TIE = 1e-12, Z = 1.959963984540054, NONE = "not estimable";
  const fixed = (x, d) => (Math.floor(x * 10 ** d + 0.5) / 10 ** d).toFixed(d);

  // What is cheapest for a candidate: 0 PASS, 1 ESCALATE, 2 BLOCK. `ca` null: two actions.
  function action(p, rho, ca) {
    const passing = rho * p, blocking = 1 - p;
    if (blocking <= passing + TIE && (ca === null || blocking <= ca + TIE)) return 2;
    return ca !== null && ca <= passing + TIE ? 1 : 0;
  }

  function rate(count, n) {
    if (n === 0) return NONE;
    const r = count / n, scale = 1 + Z * Z / n, center = (r + Z * Z / (2 * n)) / scale;
    const half = Z * Math.sqrt(r * (1 - r) / n + Z * Z / (4 * n * n)) / scale;
    const low = count === 0 ? 0 : Math.max(0, center - half);
    const high = count === n ? 1 : Math.min(1, center + half);
    return `${count}/${n} (${fixed(100 * count / n, 1)}%) ` +
      `[${fixed(100 * low, 1)}, ${fixed(100 * high, 1)}]`;
  }

  function figures([queries, unscored, bins], rho, ca) {
    const clean = [unscored[0], 0, 0], poison = [unscored[1], 0, 0];
    for (const [p, c, q] of bins) {
      const found = action(p, rho, ca);
      clean[found] += c;
      poison[found] += q;
    }
    const sum = (a) => a[0] + a[1] + a[2];
    const total = rho * poison[0] + clean[2] + (ca === null ? 0 : ca) * (poison[1] + clean[1]);
    return [...[0, 1, 2].map((i) => `${poison[i]} / ${clean[i]}`),
      rate(poison[0], sum(poison)), rate(clean[2], sum(clean)),
      queries === 0 ? NONE : fixed(1000 * total / queries, 1)];
  }

  function state(rho, ca) {
    const costs = `\u03c1 = ${fixed(rho, 2)}, ` +
      (ca === null ? "no ESCALATE" : `c_A = ${fixed(ca, 2)}`);
    if (ca !== null && 1 - ca - ca / rho > TIE) {
      return `${costs}. Escalated from p = ${fixed(ca / rho, 4)}, ` +
        `blocked from p = ${fixed(1 - ca, 4)}.`;
    }
    const never = ca === null ? "" : " Escalating is never cheapest.";
    return `${costs}. Blocked from p = ${fixed(1 / (1 + rho), 4)}.${never}`;
  }

  function start(section) {
    const data = JSON.parse(section.querySelector("script.numbers").textContent);
    const form = section.querySelector("form"), line = section.querySelector(".state");
    const rows = [...section.querySelectorAll("tbody tr")];
    const rho = form.elements.namedItem("rho"), ca = form.elements.namedItem("c_a");
    const three = form.elements.namedItem("three");
    rho.value = String(Math.log10(data.rho));
    ca.value = String(data.c_a);
    const now = [data.rho, data.c_a];  // a slider moves in steps, so it counts once it is moved
    function show(event) {
      if (event.target === rho) now[0] = Math.round(10 ** Number(rho.value) * 100) / 100;
      if (event.target === ca) now[1] = Number(ca.value);
      const costs = [now[0], three.checked ? now[1] : null];
      ca.disabled = !three.checked;
      rho.setAttribute("aria-valuetext", fixed(costs[0], 2));
      line.textContent = state(...costs);
      rows.forEach((row, i) => {
        const texts = figures(data.cells[i], ...costs);
        [...row.querySelectorAll("td")].forEach((cell, j) => { cell.textContent = texts[j]; });
      });
    }
    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
  }
  return { figures, state, start };
})();
if (typeof document !== "undefined") {
  document.querySelectorAll("section.decision:not([data-on])").forEach((section) => {
    section.dataset.on = "1";
    ragassayDecision.start(section);
  });
}

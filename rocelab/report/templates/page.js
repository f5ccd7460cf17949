// Draws the figures, follows the colour scheme of the reader, and switches series on and off.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("figure-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const hiddenSeries = new Set();
  // What the values of figures are drawn over.
  const HEADINGS = new Set(["Message size", "Servers", "Workload", "Time"]);
  // Tests and curious readers find the Vega views here, by the id of the figure.
  window.rocelab = { views: {}, ready: null };

  function escapeHtml(text) {
    const element = document.createElement("span");
    element.textContent = String(text);
    return element.innerHTML;
  }

  function tooltip(value) {
    const entries = Object.entries(value).filter(([key]) => !hiddenSeries.has(key));
    const head = entries.filter(([key]) => HEADINGS.has(key)).map(([, text]) => `<strong>${escapeHtml(text)}</strong>`);
    const rows = entries
      .filter(([key, text]) => !HEADINGS.has(key) && text !== undefined && text !== "undefined" && text !== "null")
      .map(([key, text]) => `<tr><td>${escapeHtml(key)}</td><td>${escapeHtml(text)}</td></tr>`);
    return `${head.join("")}<table role="presentation">${rows.join("")}</table>`;
  }

  function shownIn(spec) {
    const shown = (spec.params || []).find((param) => param.name === "shown");
    return shown ? shown.value : null;
  }

  async function draw(id) {
    const element = document.getElementById(id);
    const old = window.rocelab.views[id];
    if (old) old.finalize();
    const spec = structuredClone(data.specs[id]);
    const shown = (spec.params || []).find((param) => param.name === "shown");
    if (shown) shown.value = shown.value.filter((name) => !hiddenSeries.has(name));
    const result = await vegaEmbed(element, spec, {
      config: dark.matches ? data.themes.dark : data.themes.light,
      renderer: "svg",
      actions: false,
      tooltip: { theme: "report", id: "vg-tooltip-element", formatTooltip: tooltip, disableDefaultStyle: true },
    });
    element.style.minHeight = "";
    // Vega describes its container as a document of hundreds of marks. The element around it has the words.
    for (const attribute of ["role", "aria-roledescription", "aria-label"]) element.removeAttribute(attribute);
    window.rocelab.views[id] = result.view;
  }

  async function drawAll() {
    for (const id of Object.keys(data.specs)) await draw(id);
  }

  function apply(name) {
    for (const button of document.querySelectorAll(".switch")) {
      if (button.dataset.series === name) button.setAttribute("aria-pressed", String(!hiddenSeries.has(name)));
    }
    for (const [id, view] of Object.entries(window.rocelab.views)) {
      const all = shownIn(data.specs[id]);
      if (all && all.includes(name)) view.signal("shown", all.filter((each) => !hiddenSeries.has(each))).runAsync();
    }
  }

  for (const group of document.querySelectorAll(".switches")) group.hidden = false;
  for (const button of document.querySelectorAll(".switch")) {
    button.addEventListener("click", () => {
      const name = button.dataset.series;
      if (!hiddenSeries.delete(name)) hiddenSeries.add(name);
      apply(name);
    });
  }
  dark.addEventListener("change", () => { window.rocelab.ready = drawAll(); });
  window.rocelab.ready = drawAll();
})();

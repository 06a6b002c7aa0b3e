// Shows an SVG made by the kernel. Its ids are made unique, since two drawings on one page may
// hold the same clip paths, and hiding one of them would blank the other.

let drawings = 0;

function withPrefix(svg, prefix) {
  return svg
    .replace(/\bid="/g, `id="${prefix}`)
    .replace(/url\(#/g, `url(#${prefix}`)
    .replace(/href="#/g, `href="#${prefix}`);
}

function render({ model, el }) {
  const prefix = `mls${(drawings += 1)}-`;
  el.classList.add("mls-picture");

  function fill() {
    const focused = el.contains(document.activeElement)
      ? document.activeElement.getAttribute("data-sym")
      : null;
    el.innerHTML = withPrefix(model.get("svg"), prefix);
    const svg = el.querySelector("svg");
    if (svg) {
      svg.setAttribute("width", model.get("width"));
      svg.removeAttribute("height");
      svg.setAttribute("role", "group");
      svg.setAttribute("aria-label", model.get("alt"));
    }
    const reached = new Set();
    for (const part of el.querySelectorAll("[data-sym]")) {
      const symbols = part.getAttribute("data-sym");
      if (reached.has(symbols)) continue; // one stop of the Tab key for each symbol
      reached.add(symbols);
      part.setAttribute("tabindex", "0");
      part.setAttribute("role", "img");
      part.setAttribute("aria-label", `part of the drawing governed by ${symbols}`);
    }
    if (focused) el.querySelector(`[data-sym="${focused}"][tabindex]`)?.focus();
    el.dispatchEvent(new CustomEvent("mls-redrawn", { bubbles: true }));
  }

  model.on("change:svg", fill);
  fill();
  return () => model.off("change:svg", fill);
}

export default { render };

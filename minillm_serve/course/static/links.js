// Links formula, controls and drawing of one experiment. Three kinds of element say which symbols
// they belong to: symbols of the formula and parts of the drawing (data-sym="N" or "N H"), and
// controls (class "sym-N"). Pointing at one, or focusing it, lights all that share a symbol.

const OWNER = "[data-sym], .mls-control";
const FOCUSABLE = ".noUi-handle, select, input, textarea, button";

function symbolsOf(element) {
  const owner = element?.closest?.(OWNER);
  if (!owner) return [];
  if (owner.hasAttribute("data-sym")) return owner.getAttribute("data-sym").split(" ");
  return [...owner.classList].filter((name) => name.startsWith("sym-")).map((name) => name.slice(4));
}

function elementsOf(scope, symbol) {
  return scope.querySelectorAll(`[data-sym~="${symbol}"], .mls-control.sym-${symbol}`);
}

function render({ model, el }) {
  el.classList.add("mls-links");
  const formula = el.appendChild(document.createElement("div"));
  formula.className = "mls-formula";
  const live = el.appendChild(document.createElement("div"));
  live.className = "mls-live";
  const hint = el.appendChild(document.createElement("div"));
  hint.className = "mls-hint";
  hint.setAttribute("aria-live", "polite");

  let pointed = [];
  let focused = [];

  const scope = () => el.closest(".mls-experiment");

  function show() {
    const root = scope();
    if (!root) return;
    const lit = pointed.length ? pointed : focused;
    for (const old of root.querySelectorAll(".mls-lit")) old.classList.remove("mls-lit");
    for (const symbol of lit) {
      for (const element of elementsOf(root, symbol)) element.classList.add("mls-lit");
    }
    root.classList.toggle("mls-has-lit", lit.length > 0);
    const hints = model.get("hints");
    const said = lit.map((symbol) => hints[symbol] ?? symbol).join(" · ");
    hint.textContent = said ||
      "Point at a symbol, or reach it with Tab, and see what it governs. Enter goes to its control.";
  }

  function inside(target) {
    const root = scope();
    return root && target instanceof Element && root.contains(target);
  }

  function onPointer(event) {
    const next = inside(event.target) ? symbolsOf(event.target) : [];
    if (next.join() !== pointed.join()) {
      pointed = next;
      show();
    }
  }

  function onFocus(event) {
    const within = inside(event.target);
    // JupyterLab's one-letter shortcuts must not act on its notebook while a control has the focus:
    // an x on a slider would cut the cell. Lab looks for this mark from the focused element up to
    // the first one that a shortcut is meant for, and that is the focused element itself.
    if (within) event.target.setAttribute("data-lm-suppress-shortcuts", "true");
    focused = within ? symbolsOf(event.target) : [];
    show();
  }

  function onBlur() {
    focused = [];
    show();
  }

  function onKey(event) {
    const symbol = event.target.closest?.("[data-sym]");
    if (event.key !== "Enter" || !symbol || !formula.contains(symbol)) return;
    const control = scope()?.querySelector(`.mls-control.sym-${symbol.getAttribute("data-sym")}`);
    const handle = control?.querySelector(FOCUSABLE);
    if (handle) {
      event.preventDefault();
      handle.focus();
    }
  }

  function fill() {
    const active = formula.contains(document.activeElement)
      ? document.activeElement.getAttribute("data-sym")
      : null;
    formula.innerHTML = model.get("formula");
    live.innerHTML = model.get("live");
    el.classList.toggle("mls-plain", !model.get("formula"));
    // Rewriting the formula takes the focus away from the symbol that had it: give it back.
    if (active) formula.querySelector(`[data-sym="${active}"][tabindex]`)?.focus();
    show();
  }

  const listeners = [
    ["pointerover", onPointer],
    ["focusin", onFocus],
    ["focusout", onBlur],
    ["keydown", onKey],
    ["mls-redrawn", show],
  ];
  for (const [name, act] of listeners) document.addEventListener(name, act);
  model.on("change:formula change:live change:hints", fill);
  fill();
  return () => {
    for (const [name, act] of listeners) document.removeEventListener(name, act);
    model.off("change:formula change:live change:hints", fill);
  };
}

export default { render };

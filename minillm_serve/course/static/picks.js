// Lets parts of an experiment's drawing be picked: a click on a part, or Enter or the space bar on
// it, sends the part's name to the kernel. Parts are those with a symbol `<prefix><number>`.

function render({ model, el }) {
  el.style.display = "none";

  function onPick(event) {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    const scope = el.closest(".mls-experiment");
    const part = event.target.closest?.(".mls-picture [data-sym]");
    if (!part || !scope?.contains(part)) return;
    const prefix = model.get("prefix");
    const name = part.getAttribute("data-sym").split(" ").find((one) => one.startsWith(prefix));
    if (!name) return;
    event.preventDefault();
    model.set("picked", name);
    model.save_changes();
  }

  const listeners = ["click", "keydown"];
  for (const name of listeners) document.addEventListener(name, onPick);
  return () => {
    for (const name of listeners) document.removeEventListener(name, onPick);
  };
}

export default { render };

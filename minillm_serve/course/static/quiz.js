// One fieldset a question: native radio buttons, a Check button, and the explanation below.

let quizzes = 0;

function renderQuestion(model, question, number, name) {
  const set = document.createElement("fieldset");
  const legend = set.appendChild(document.createElement("legend"));
  legend.innerHTML = `<span class="mls-number">${number + 1}.</span> ${question.text}`;
  question.choices.forEach((choice, index) => {
    const label = set.appendChild(document.createElement("label"));
    label.innerHTML = `<input type="radio" name="${name}" value="${index}"><span>${choice}</span>`;
  });
  const check = set.appendChild(document.createElement("button"));
  check.type = "button";
  check.textContent = "Check";
  check.disabled = true;
  const why = set.appendChild(document.createElement("div"));
  why.className = "mls-why";
  why.setAttribute("role", "status");

  const picked = () => set.querySelector("input:checked");

  function verdict() {
    const input = picked();
    if (!input) return;
    const index = Number(input.value);
    const right = index === question.answer;
    for (const label of set.querySelectorAll("label")) label.classList.remove("mls-right", "mls-wrong");
    input.closest("label").classList.add(right ? "mls-right" : "mls-wrong");
    why.className = `mls-why ${right ? "mls-right" : "mls-wrong"}`;
    why.innerHTML = `<b>${right ? "✓ Right." : "✗ Not so."}</b> ${question.why[index]}`;
    const chosen = [...model.get("chosen")];
    chosen[number] = index;
    model.set("chosen", chosen);
    model.save_changes();
  }

  set.addEventListener("change", () => {
    check.disabled = false;
  });
  set.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input")) {
      event.preventDefault();
      verdict();
    }
  });
  check.addEventListener("click", verdict);

  const before = model.get("chosen")[number];
  if (before !== null && before !== undefined) {
    set.querySelector(`input[value="${before}"]`).checked = true;
    check.disabled = false;
    verdict();
  }
  return set;
}

function render({ model, el }) {
  const name = `mls-quiz-${(quizzes += 1)}`;
  el.classList.add("mls-quiz");
  // JupyterLab's one-letter shortcuts must not act on its notebook from in here (see links.js).
  el.addEventListener("focusin", (event) => {
    event.target.setAttribute("data-lm-suppress-shortcuts", "true");
  });
  const questions = model.get("questions_state");
  questions.forEach((question, number) => {
    el.appendChild(renderQuestion(model, question, number, `${name}-${number}`));
  });
  const score = el.appendChild(document.createElement("div"));
  score.className = "mls-score";
  score.setAttribute("aria-live", "polite");

  function count() {
    const chosen = model.get("chosen");
    const right = questions.filter((question, number) => chosen[number] === question.answer).length;
    score.textContent = `${right} of ${questions.length} right`;
  }
  model.on("change:chosen", count);
  count();
  return () => model.off("change:chosen", count);
}

export default { render };

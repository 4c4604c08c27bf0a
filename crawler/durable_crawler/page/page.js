"use strict";
// Numbers every two seconds; the tables every ten. Without it the page says how things were when it was opened.
(() => {
  const live = document.getElementById("live");
  if (!live) return;

  const numbers = async () => {
    const answer = await fetch("/progress");
    if (!answer.ok) return;
    const progress = await answer.json();
    for (const element of document.querySelectorAll("[data-key]")) {
      element.textContent = progress[element.dataset.key].toLocaleString("en", { maximumFractionDigits: 1 });
    }
  };

  const tables = async () => {
    const answer = await fetch("/");
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["live", "phase"]) {
      const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
      if (old && now && old.innerHTML !== now.innerHTML && !old.contains(document.activeElement)) {
        old.replaceChildren(...now.childNodes);
      }
    }
  };

  const every = (seconds, job) => {
    const turn = () => job().catch(() => {}).finally(() => setTimeout(turn, seconds * 1000));
    setTimeout(turn, seconds * 1000);
  };

  every(2, numbers);
  every(10, tables);
})();

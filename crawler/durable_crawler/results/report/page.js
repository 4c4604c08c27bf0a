"use strict";
// Without this the report is a document with every row; with it, tables are sorted, filtered and shown by pages.
(() => {
  const PAGE = 200;

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.classList.contains("number") ? Number(cell.dataset.value ?? cell.textContent) : cell.textContent;
  };

  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));

  const sortable = (table, changed) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = changed.rows.map((row) => [value(row, column), row]);
        rows.sort(([a], [b]) => (descending ? compare(b, a) : compare(a, b)));
        changed.rows = rows.map(([, row]) => row);
        body.append(...changed.rows);
        changed.show(0);
      });
    });
  };

  const paged = (table, tools) => {
    const [text, kind] = [tools?.querySelector("input"), tools?.querySelector("select")];
    const said = document.createElement("span");
    said.setAttribute("role", "status");
    const before = document.createElement("button");
    const after = document.createElement("button");
    for (const [button, name] of [[before, "Previous"], [after, "Next"]]) {
      button.type = "button";
      button.textContent = name;
    }
    const pager = document.createElement("div");
    pager.className = "tools";
    pager.append(before, after, said);
    table.parentElement.after(pager);

    const view = {
      rows: [...table.tBodies[0].rows],
      from: 0,
      all: false,
      show(from) {
        const wanted = (text?.value ?? "").toLowerCase();
        const only = kind?.value ?? "";
        const found = view.rows.filter(
          (row) => (!only || row.dataset.kind === only) && (!wanted || row.textContent.toLowerCase().includes(wanted)),
        );
        view.from = Math.max(0, Math.min(from, Math.floor(Math.max(0, found.length - 1) / PAGE) * PAGE));
        const shown = new Set(view.all ? found : found.slice(view.from, view.from + PAGE));
        for (const row of view.rows) row.hidden = !shown.has(row);
        const last = Math.min(found.length, view.from + PAGE);
        said.textContent = found.length ? `${view.from + 1} to ${last} of ${found.length}` : "nothing is like that";
        before.disabled = view.from === 0;
        after.disabled = last >= found.length;
        before.hidden = after.hidden = found.length <= PAGE;
      },
    };
    before.addEventListener("click", () => view.show(view.from - PAGE));
    after.addEventListener("click", () => view.show(view.from + PAGE));
    text?.addEventListener("input", () => view.show(0));
    kind?.addEventListener("change", () => view.show(0));
    addEventListener("beforeprint", () => {
      view.all = true;
      view.show(view.from);
      for (const details of table.querySelectorAll("details")) details.open = true;
    });
    addEventListener("afterprint", () => {
      view.all = false;
      view.show(view.from);
    });
    if (tools) tools.hidden = false;
    view.show(0);
    return view;
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    sortable(table, paged(table, document.getElementById(`${table.id}-tools`)));
  }
})();

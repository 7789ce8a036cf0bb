/* Tables that sort by a click on a heading. */
{
  const orderOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.order ?? cell.textContent.trim();
    const number = Number(text.replaceAll(",", ""));
    return text !== "" && Number.isFinite(number) ? number : text;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      for (const term of button.querySelectorAll("abbr")) term.removeAttribute("tabindex");
      heading.append(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const sign = heading.getAttribute("aria-sort") === "descending" ? 1 : -1;
        for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => sign * compare(orderOf(a, column), orderOf(b, column)));
        table.tBodies[0].append(...rows);
      });
    });
  }
}

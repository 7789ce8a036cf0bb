"use strict";
/* Read-outs on charts, copy buttons, sortable tables and the theme. The page is whole without it. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const announce = (text) => { document.getElementById("announce").textContent = text; };

  /* Theme: follows the system until somebody chooses. */
  const root = document.documentElement;
  const remembered = () => { try { return localStorage.getItem("leakscope-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("leakscope-theme", theme); } catch { /* not allowed here */ } };
  const chosen = new URLSearchParams(location.search).get("theme") || remembered();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  const themeButton = document.getElementById("theme");
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember(root.dataset.theme);
  });

  /* Copying, also where the clipboard is not to be had. */
  const copyByHand = (text) => {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("refused"));
  };
  const copy = (text) => (navigator.clipboard ? navigator.clipboard.writeText(text).catch(() => copyByHand(text)) : copyByHand(text));
  for (const button of document.querySelectorAll("[data-copy]")) {
    const text = data.copies[button.dataset.copy];
    if (typeof text !== "string") continue;
    const label = button.textContent;
    const say = (word) => {
      button.textContent = word;
      announce(word);
      setTimeout(() => { button.textContent = label; }, 1600);
    };
    button.hidden = false;
    button.addEventListener("click", () => copy(text).then(() => say("Copied"), () => say("Could not copy")));
  }

  /* Tables that sort by a click on a heading. */
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

  /* Read-outs: the values under the pointer, or under the arrow keys. */
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const bytes = (amount) => {
    let rest = Math.abs(amount), unit = 0;
    while (rest >= 999.5 && unit < units.length - 1) { rest /= 1024; unit += 1; }
    const digits = rest.toFixed(unit === 0 || rest >= 99.95 ? 0 : 1).replace(/\.0$/, "");
    return `${amount < 0 ? "\u2212" : ""}${digits} ${units[unit]}`;
  };
  const clock = (seconds) => {
    const whole = Math.max(0, Math.round(seconds)), minutes = Math.floor(whole / 60);
    const two = (number) => String(number).padStart(2, "0");
    return minutes < 60 ? `${minutes}:${two(whole % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
  };
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle; else high = middle;
    }
    return points.length && Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? low : high;
  };
  const element = (name, style) => {
    const made = document.createElement(name);
    made.className = style;
    return made;
  };

  const attach = (plot, chart, frame) => {
    const lead = chart.lines.find((line) => line.points.length);
    if (!lead) return;
    const surface = element("div", "surface"), cursor = element("div", "cursor"), readout = element("div", "readout");
    surface.tabIndex = 0;
    surface.setAttribute("role", "slider");
    surface.setAttribute("aria-label", "Values along the chart; move with the arrow keys");
    surface.setAttribute("aria-valuemin", "0");
    surface.setAttribute("aria-valuemax", String(lead.points.length - 1));
    surface.setAttribute("aria-valuenow", "0");
    cursor.hidden = readout.hidden = true;
    plot.append(surface, cursor, readout);
    let at = 0;

    const entry = (label, value) => {
      const row = document.createElement("span"), strong = document.createElement("b");
      strong.textContent = value;
      row.append(strong, label ? ` ${label}` : "");
      return row;
    };
    const where = (x) => {
      const span = chart.spans.find((item) => item[2] <= x && x <= item[3]);
      return span ? span[0] + (span[1] === null ? "" : `, epoch ${span[1]}`) : "";
    };
    const show = (index) => {
      at = index;
      const x = lead.points[index][0];
      const share = frame.left + (frame.right - frame.left) * ((x - frame.x[0]) / (frame.x[1] - frame.x[0]));
      const { width, height } = plot.getBoundingClientRect();
      readout.replaceChildren(
        entry(where(x), chart.x === "clock" ? clock(x) : `${chart.x} ${x}`),
        ...chart.lines.filter((line) => line.points.length).map((line) => entry(line.label, bytes(line.points[nearest(line.points, x)][1]))),
      );
      cursor.hidden = readout.hidden = false;
      cursor.style.left = `${share * width}px`;
      cursor.style.top = `${frame.top * height}px`;
      cursor.style.height = `${(frame.bottom - frame.top) * height}px`;
      const room = width - readout.offsetWidth;
      readout.style.left = `${Math.max(0, Math.min(room, share > 0.55 ? share * width - readout.offsetWidth - 12 : share * width + 12))}px`;
      surface.setAttribute("aria-valuenow", String(index));
      surface.setAttribute("aria-valuetext", readout.textContent);
    };
    const hide = () => { cursor.hidden = readout.hidden = true; };
    surface.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const share = ((event.clientX - box.left) / box.width - frame.left) / (frame.right - frame.left);
      show(nearest(lead.points, frame.x[0] + Math.min(1, Math.max(0, share)) * (frame.x[1] - frame.x[0])));
    });
    surface.addEventListener("pointerleave", hide);
    surface.addEventListener("blur", hide);
    surface.addEventListener("focus", () => { if (surface.matches(":focus-visible")) show(at); });
    surface.addEventListener("keydown", (event) => {
      const last = lead.points.length - 1, leap = Math.max(1, Math.round(lead.points.length / 40));
      const moves = { ArrowLeft: at - leap, ArrowRight: at + leap, Home: 0, End: last };
      if (!(event.key in moves)) { if (event.key === "Escape") hide(); return; }
      event.preventDefault();
      show(Math.min(last, Math.max(0, moves[event.key])));
    });
  };
  for (const figure of document.querySelectorAll("[data-chart]")) {
    const chart = data.charts[figure.dataset.chart];
    if (!chart) continue;
    for (const plot of figure.querySelectorAll("[data-frame]")) attach(plot, chart, chart.frames[plot.dataset.frame]);
  }

  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details")) details.open = true; });
})();

/* Read-outs: the values under the pointer, or under the arrow keys. */
const readingRow = (label, value, line) => {
  const row = document.createElement("span"), strong = document.createElement("b");
  strong.textContent = value;
  if (line) row.append(strokeKey(line), " ");
  row.append(strong, label ? ` ${label}` : "");
  return row;
};

/* A surface to point at, with a line and a box of values that move along it. */
const reader = (plot, label) => {
  const surface = element("div", "surface"), cursor = element("div", "cursor"), readout = element("div", "readout");
  surface.tabIndex = 0;
  surface.setAttribute("role", "slider");
  surface.setAttribute("aria-label", label);
  surface.setAttribute("aria-valuemin", "0");
  surface.setAttribute("aria-valuemax", "0");
  surface.setAttribute("aria-valuenow", "0");
  cursor.hidden = readout.hidden = true;
  plot.append(surface, cursor, readout);
  const hide = () => { cursor.hidden = readout.hidden = true; };
  const show = (frame, x, rows) => {
    const share = frame.left + (frame.right - frame.left) * ((x - frame.x[0]) / (frame.x[1] - frame.x[0]));
    const { width, height } = plot.getBoundingClientRect();
    readout.replaceChildren(...rows);
    cursor.hidden = readout.hidden = false;
    cursor.style.left = `${share * width}px`;
    cursor.style.top = `${frame.top * height}px`;
    cursor.style.height = `${(frame.bottom - frame.top) * height}px`;
    /* Of a picture with many rows it stands below the one that is read. */
    readout.style.top = frame.below === undefined ? "" : `calc(${frame.below * height}px + 0.25rem)`;
    const room = width - readout.offsetWidth;
    readout.style.left = `${Math.max(0, Math.min(room, share > 0.55 ? share * width - readout.offsetWidth - 12 : share * width + 12))}px`;
    surface.setAttribute("aria-valuetext", rows.map((row) => row.textContent.trim()).filter(Boolean).join(", "));
  };
  /* A finger that is lifted leaves its reading; a tap elsewhere takes it away. */
  surface.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  surface.addEventListener("blur", hide);
  return { surface, show, hide };
};

/* What a pointer over a plot points at, in the chart's own terms. */
const pointedAt = (plot, frame, clientX) => {
  const box = plot.getBoundingClientRect();
  const share = ((clientX - box.left) / box.width - frame.left) / (frame.right - frame.left);
  return frame.x[0] + Math.min(1, Math.max(0, share)) * (frame.x[1] - frame.x[0]);
};

{
  const attach = (plot, chart, frame) => {
    const lead = chart.lines.find((line) => line.points.length);
    if (!lead) return;
    const box = reader(plot, "Values along the chart; move with the arrow keys");
    box.surface.setAttribute("aria-valuemax", String(lead.points.length - 1));
    let at = 0;
    const where = (x) => {
      const span = chart.spans.find((item) => item[2] <= x && x <= item[3]);
      return span ? span[0] + (span[1] === null ? "" : `, epoch ${span[1]}`) : "";
    };
    const show = (index) => {
      at = index;
      const x = lead.points[index][0];
      box.surface.setAttribute("aria-valuenow", String(index));
      const counted = (at) => (chart.steps?.length ? countWords(chart.x, stepAt(chart.steps, at)) : `${chart.x} ${at.toLocaleString("en")}`);
      const moment = (at) => (chart.x === "clock" ? clock(at) : counted(at));
      box.show(frame, x, [
        readingRow(where(x), moment(x)),
        ...chart.lines.filter((line) => line.points.length).map((line) => {
          const [when, amount] = line.points[nearest(line.points, x)];
          return readingRow(moment(when) === moment(x) ? line.label : `(at ${moment(when)}) ${line.label}`, bytes(amount), line.shade && line);
        }),
      ]);
    };
    box.surface.addEventListener("pointermove", (event) => show(nearest(lead.points, pointedAt(plot, frame, event.clientX))));
    box.surface.addEventListener("focus", () => { if (box.surface.matches(":focus-visible")) show(at); });
    box.surface.addEventListener("keydown", (event) => {
      const last = lead.points.length - 1, leap = Math.max(1, Math.round(lead.points.length / 40));
      const moves = { ArrowLeft: at - leap, ArrowRight: at + leap, Home: 0, End: last };
      if (!(event.key in moves)) { if (event.key === "Escape") box.hide(); return; }
      event.preventDefault();
      show(Math.min(last, Math.max(0, moves[event.key])));
    });
  };
  for (const figure of document.querySelectorAll("[data-chart]")) {
    const chart = data.charts[figure.dataset.chart];
    if (!chart || chart.zooms) continue;
    for (const plot of figure.querySelectorAll("[data-frame]")) attach(plot, chart, chart.frames[plot.dataset.frame]);
  }
}

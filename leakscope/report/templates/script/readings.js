/* Read-outs: the values under the pointer, or under the arrow keys. */
{
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
}

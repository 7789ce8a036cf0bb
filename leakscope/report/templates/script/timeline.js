/* The timeline, to look closer at: pan, zoom, lines and phases switched on and off, values read. */
{
  const explore = (figure, chart) => {
    const key = figure.dataset.chart;
    const laidOver = chart.laidOver ?? [], series = [...chart.lines, ...laidOver];
    const ends = series.flatMap((line) => (line.points.length ? [line.points[0][0], line.points.at(-1)[0]] : []));
    if (!ends.length || Math.min(...ends) === Math.max(...ends)) return;
    const whole = [Math.min(...ends), Math.max(...ends)];
    const plot = figure.querySelector(".plot.live"), tools = figure.querySelector(".chart-tools"), summaryLine = figure.querySelector(".stretch");
    const svg = svgElement("svg", { class: "drawing chart live", "aria-hidden": "true" });
    const band = element("div", "band");
    band.hidden = true;
    plot.hidden = tools.hidden = summaryLine.hidden = false;
    figure.classList.add("explored");
    plot.append(svg, band);
    const on = new Set(series.filter((line) => line.on ?? !laidOver.includes(line))), coloured = new Set(Array.from(chart.phases, (_, place) => place));
    const box = reader(plot, "Memory over the run. Arrow keys read values, plus and minus zoom, Shift with an arrow pans, 0 shows all.");
    box.surface.id = `${key}-surface`;
    let frame = null, at = null, waiting = false;

    /* Where the chart is: a time, or so much of what its axis counts. */
    const countAt = (x) => (chart.steps?.length ? stepAt(chart.steps, x) : x);
    const momentAt = (x, decimals) => (chart.x === "clock" ? exactClock(x, decimals) : countWords(chart.x, countAt(x)));
    /* How far a phase has come for which the steps stand still. */
    const throughAt = (x) => {
      const span = chart.steps?.length && chart.spans.find(([, , start, end]) => start <= x && x <= end);
      if (!span || countAt(span[3]) - countAt(span[2]) > 1e-3) return "";
      return `${Math.round((100 * (x - span[2])) / (span[3] - span[2] || 1))} % through ${chart.phases[span[0]].label}`;
    };
    const shownLines = () => series.filter((line) => on.has(line) && line.points.length);
    const sizes = () => {
      const width = Math.round(plot.clientWidth);
      return [width, Math.round(width < 500 ? width * 0.72 : width * 0.446)];
    };
    const summary = () => {
      if (stretch.isWhole) return "";
      const [from, to] = stretch.shown, decimals = to - from < 10 ? 2 : 0;
      const cut = frame.y[0] > 0 ? " The scale doesn't begin at zero." : "";
      const heights = ({ points }) => [heightAt(points, from), heightAt(points, to), ...points.filter(([x]) => x >= from && x <= to).map(([, y]) => y)];
      const isThere = ({ points }) => points[0][0] <= to && points.at(-1)[0] >= from;
      const under = shownLines().filter((line) => isThere(line) && heights(line).every((y) => y < frame.y[0]));
      const below = under.map((line) => ` ${line.label} lies below it.`).join("");
      const edge = (x) => [momentAt(x, decimals), throughAt(x)].filter(Boolean).join(", ");
      return `${edge(from)} to ${edge(to)} of ${momentAt(whole[1], 0)}.${cut}${below}`;
    };
    const draw = () => {
      waiting = false;
      const [width, height] = sizes();
      if (!width) return;
      plot.style.height = `${height}px`;
      frame = drawChart(svg, chart, shownLines(), coloured, stretch, width, height);
      summaryLine.textContent = summary();
      tools.querySelector("[data-zoom=in]").disabled = stretch.isClosest;
      for (const name of ["out", "earlier", "later", "all"]) tools.querySelector(`[data-zoom=${name}]`).disabled = stretch.isWhole;
      plot.classList.toggle("near", !stretch.isWhole);
      figure.dataset.from = String(stretch.shown[0]);
      figure.dataset.to = String(stretch.shown[1]);
      if (at !== null) read(at);
    };
    const drawSoon = () => { if (!waiting) { waiting = true; requestAnimationFrame(draw); } };
    const stretch = stretchOf(whole, (whole[1] - whole[0]) / 2000, drawSoon);

    /* Reading: at the boundaries of the first line that is shown. */
    const lead = () => shownLines().reduce((best, line) => (best && best.points.length >= line.points.length ? best : line), null);
    const hasSteps = chart.moments.some(([, step]) => step > 0);
    const phaseWords = (phase, epoch) => [chart.phases[phase].label, ...(epoch === null ? [] : [`epoch ${epoch}`])];
    const whereAt = (x) => {
      if (!chart.moments.length) {
        const span = chart.spans.find(([, , start, end]) => start <= x && x <= end);
        const through = throughAt(x).replace(/ through .*/, " through");
        return span ? [...phaseWords(span[0], span[1]), through].filter(Boolean).join(", ") : "";
      }
      const [, step, epoch, phase] = chart.moments[nearest(chart.moments, x)];
      const stood = hasSteps ? [`step ${grouped(step, 0)}`] : [];
      return [...stood, ...(chart.spans.length ? phaseWords(phase, epoch) : [])].join(", ");
    };
    const boundaryAt = (x) => {
      const number = chart.moments.length ? chart.moments[nearest(chart.moments, x)][4] : undefined;
      return number === undefined ? "" : `boundary ${grouped(number, 0)}`;
    };
    const valueAt = (line, x) => {
      const place = nearest(line.points, x);
      return line.culprit && line.points[place][0] > x ? line.points[place - 1] : line.points[place];
    };
    /* When a value was read, where that is another moment than the one pointed at. */
    const readAt = (x, at, decimals) => {
      if (x === at) return "";
      const enough = [decimals, 2, 3].find((digits) => momentAt(x, digits) !== momentAt(at, digits));
      return enough === undefined ? "" : `(at ${momentAt(x, enough)}) `;
    };
    const read = (x) => {
      const first = lead();
      if (!first || !frame) return;
      const place = nearest(first.points, x);
      at = first.points[place][0];
      if (at < stretch.shown[0] || at > stretch.shown[1]) { box.hide(); return; }
      box.surface.setAttribute("aria-valuemax", String(first.points.length - 1));
      box.surface.setAttribute("aria-valuenow", String(place));
      const decimals = stretch.shown[1] - stretch.shown[0] < 30 ? 2 : 0;
      const rows = shownLines().map((line) => [line, valueAt(line, at)]).filter(([, point]) => point);
      box.show(frame, at, [
        readingRow(boundaryAt(at), momentAt(at, decimals)),
        readingRow(whereAt(at), ""),
        ...rows.map(([line, point]) => readingRow(`${readAt(point[0], at, decimals)}${line.label}`, bytes(point[1]), line)),
      ]);
    };
    const readNext = (leap) => {
      const first = lead();
      if (!first) return;
      const place = (at === null ? 0 : nearest(first.points, at)) + leap;
      at = first.points[Math.min(first.points.length - 1, Math.max(0, place))][0];
      const [from, to] = stretch.shown;
      if (at < from || at > to) stretch.show(at - (to - from) / 2, at + (to - from) / 2);
      read(at);
    };
    const placeOf = (clientX) => pointedAt(plot, frame, clientX);
    box.surface.addEventListener("pointermove", (event) => { if (frame && !event.buttons) read(placeOf(event.clientX)); });
    box.surface.addEventListener("pointerup", (event) => read(placeOf(event.clientX)));
    box.surface.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") at = null; });
    box.surface.addEventListener("focus", () => { if (box.surface.matches(":focus-visible")) readNext(0); });
    const perPixel = () => (frame.x[1] - frame.x[0]) / ((frame.right - frame.left) * plot.clientWidth);
    gesturesOn(box.surface, stretch, placeOf, perPixel, (between) => {
      band.hidden = !between;
      if (!between) return;
      box.hide();
      const left = plot.getBoundingClientRect().left;
      band.style.left = `${Math.min(...between) - left}px`;
      band.style.width = `${Math.abs(between[1] - between[0])}px`;
    });

    /* The same with buttons and keys. */
    const third = () => (stretch.shown[1] - stretch.shown[0]) / 3;
    const acts = {
      in: () => stretch.zoom(0.5, at ?? undefined),
      out: () => stretch.zoom(2, at ?? undefined),
      earlier: () => stretch.pan(-third()),
      later: () => stretch.pan(third()),
      all: () => stretch.reset(),
    };
    for (const button of tools.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => {
        acts[button.dataset.zoom]();
        draw();
        announce(summaryLine.textContent || "The whole run is shown.");
      });
    }
    box.surface.addEventListener("keydown", (event) => {
      const first = lead();
      const within = first ? first.points.filter(([x]) => x >= stretch.shown[0] && x <= stretch.shown[1]).length : 0;
      const leap = Math.max(1, Math.round(within / 40));
      const moves = {
        ArrowLeft: () => (event.shiftKey ? acts.earlier() : readNext(-leap)), ArrowRight: () => (event.shiftKey ? acts.later() : readNext(leap)),
        Home: () => readNext(-Infinity), End: () => readNext(Infinity), PageUp: acts.earlier, PageDown: acts.later,
        "+": acts.in, "=": acts.in, "-": acts.out, "0": acts.all, Escape: box.hide,
      };
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      moves[event.key]();
    });

    /* The legend switches: its entries become buttons. */
    const switchFor = (entry, isOn, flip) => {
      const button = element("button", "switch");
      button.type = "button";
      button.append(...entry.childNodes);
      button.setAttribute("aria-pressed", String(isOn));
      button.addEventListener("click", () => {
        const pressed = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(pressed));
        flip(pressed);
        draw();
      });
      entry.append(button);
    };
    /* A culprit's card leads here with its series switched on. */
    const offerOn = (button, switched) => {
      if (!button) return;
      button.hidden = false;
      button.addEventListener("click", () => {
        if (switched.getAttribute("aria-pressed") !== "true") switched.click();
        switched.closest("details")?.setAttribute("open", "");
        figure.scrollIntoView({ block: "center" });
        switched.focus({ preventScroll: true });
      });
    };
    const flipIn = (set, member) => (pressed) => {
      if (pressed) set.add(member); else set.delete(member);
      if (member.on) member.on = false;
    };
    for (const entry of figure.querySelectorAll("[data-series]")) {
      const line = chart.lines.find((one) => one.key === entry.dataset.series);
      if (line) switchFor(entry, true, flipIn(on, line));
    }
    for (const entry of figure.querySelectorAll("[data-phase]")) switchFor(entry, true, flipIn(coloured, Number(entry.dataset.phase)));
    const overlays = figure.querySelector(".overlays");
    if (overlays && laidOver.length) {
      /* Few culprits stand there at once: their names may be long, and the chart is what matters. */
      const atOnce = laidOver.filter((line) => line.culprit).slice(0, 3).filter((line, place) => !place || line.label.length <= 36);
      const foldedUp = (name) => {
        const folded = element("details", "further"), summary = element("summary", ""), list = element("ul", "legend");
        summary.append(name);
        list.setAttribute("aria-label", `${name} to lay over the others`);
        folded.append(summary, list);
        overlays.append(folded);
        return list;
      };
      const lists = {};
      const listFor = (line) => {
        if (atOnce.includes(line)) return overlays.querySelector(".culprits");
        const name = line.culprit ? "Further culprits" : "Further gauges";
        return (lists[name] ??= foldedUp(name));
      };
      for (const line of laidOver) {
        const entry = element("li", ""), name = element(line.culprit ? "code" : "span", "");
        entry.dataset.series = line.key;
        name.append(...(line.culprit ? line.label.split(/(?=[.·])|(?<=_)/).flatMap((part) => [part, element("wbr", "")]) : [line.label]));
        entry.append(strokeKey(line), name);
        listFor(line).append(entry);
        switchFor(entry, on.has(line), flipIn(on, line));
        offerOn(document.querySelector(`[data-overlay="${CSS.escape(line.key)}"]`), entry.querySelector("button"));
      }
      overlays.hidden = false;
    }
    new ResizeObserver(draw).observe(plot);
    draw();
  };
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const chart = data.charts[figure.dataset.chart];
    if (chart?.zooms) explore(figure, chart);
  }
}

/* Draws a stretch of a chart as SVG, in the colours and type of the page. */
const svgSpace = document.querySelector("svg").namespaceURI;
const svgElement = (name, attributes, text) => {
  const made = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};
const dashing = (line) => (line.dash ? { "stroke-dasharray": line.dash } : {});
/* What stands for a line in a legend, drawn as the line is. */
const strokeKey = (line) => {
  const key = svgElement("svg", { class: "key stroke", viewBox: "0 0 24 4", "aria-hidden": "true", focusable: "false" });
  key.append(svgElement("path", { d: "M0 2h24", ...dashing(line) }));
  return shaded(key, line.shade);
};
const shaded = (made, shade) => { made.style.setProperty("--key", `var(--${shade})`); return made; };

/* The points to draw between two moments, at most the lowest and highest of each pixel. */
const pointsBetween = (points, from, to, pixels) => {
  const after = (x) => {
    let low = 0, high = points.length;
    while (low < high) { const middle = (low + high) >> 1; if (points[middle][0] < x) low = middle + 1; else high = middle; }
    return low;
  };
  const seen = points.slice(Math.max(0, after(from) - 1), after(to) + 1);
  if (seen.length <= pixels * 3) return seen;
  const kept = [];
  for (let pixel = 0; pixel < pixels; pixel += 1) {
    const part = seen.slice(Math.floor((pixel * seen.length) / pixels), Math.floor(((pixel + 1) * seen.length) / pixels));
    let low = part[0], high = part[0];
    for (const point of part) { if (point[1] < low[1]) low = point; if (point[1] > high[1]) high = point; }
    if (low) kept.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  }
  return kept;
};

/* How high a line is drawn at a moment: between its points, or as at the first or last of them. */
const heightAt = (points, x) => {
  const after = points.findIndex(([at]) => at >= x);
  if (after < 1) return points.at(after)[1];
  const [[x0, y0], [x1, y1]] = points.slice(after - 1, after + 1);
  return y0 + ((y1 - y0) * (x - x0)) / (x1 - x0 || 1);
};

/* A line's points cut where it is drawn anew: between these nothing was read. */
const runsOf = (line) => [0, ...(line.begins ?? [])].map((from, place, all) => line.points.slice(from, all[place + 1]));

/* The heights that an axis must reach: from zero, or closer where only a stretch is shown. */
const heightsOf = (chart, drawn, from, to, whole) => {
  let low = Infinity, high = -Infinity;
  for (const points of drawn) for (const [x, y] of points) if (x >= from && x <= to) { low = Math.min(low, y); high = Math.max(high, y); }
  if (low > high) for (const points of drawn) for (const [, y] of points) { low = Math.min(low, y); high = Math.max(high, y); }
  if (low > high) return [0, 1];
  if (chart.limit && whole && chart.limit <= high * 2.5) high = Math.max(high, chart.limit);
  if (whole || low < high * 0.4) low = 0;
  const room = Math.max((high - low) * 0.06, high * 0.0005, 1);
  return [low === 0 ? 0 : Math.max(0, low - room), high + room];
};

/* The epoch that runs at a moment, as far as that is known: of many epochs and phases only some are. */
const runningEpoch = (chart, at) => {
  const place = chart.epochs.filter(([start]) => start < at).length - 1;
  if (place < 0) return undefined;
  const epoch = chart.epochs[place][1], goesOn = chart.epochs[place + 1]?.[1] === epoch + 1;
  return goesOn || chart.spans.some((span) => span[1] === epoch && span[3] > at) ? epoch : undefined;
};

/* A phase that lasts less than this part of what is shown can't be seen. */
const finest = 900;

/* Returns where the drawing shows its data, as the frames of the printed drawings say it. */
const drawChart = (svg, chart, lines, coloured, stretch, width, height) => {
  const [from, to] = stretch.shown;
  const margin = { left: 70, right: 14, top: 18, bottom: 26 };
  const inner = { width: Math.max(1, width - margin.left - margin.right), height: Math.max(1, height - margin.top - margin.bottom) };
  const drawn = lines.map((line) => runsOf(line)
    .filter((run) => run.length && run[0][0] <= to && run.at(-1)[0] >= from)
    .map((run) => pointsBetween(run, from, to, inner.width)));
  /* A culprit that is laid over from the start does not keep the others from being seen closely. */
  const chosen = drawn.filter((_, place) => !lines[place].on);
  let [low, high] = heightsOf(chart, (chosen.length ? chosen : drawn).flat(), from, to, stretch.isWhole);
  const levels = byteTicks(low, high, Math.max(2, Math.round(inner.height / 62)));
  low = low === 0 ? 0 : Math.floor(low / levels.step) * levels.step;
  high = Math.ceil(high / levels.step) * levels.step;
  const xOf = (x) => (inner.width * (x - from)) / (to - from || 1);
  const yOf = (y) => inner.height * (1 - (y - low) / (high - low));
  const round = (number) => Math.round(number * 10) / 10;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const plane = svgElement("svg", { x: margin.left, y: margin.top, width: inner.width, height: inner.height });
  const frame = svgElement("g", { transform: `translate(${margin.left} ${margin.top})` });
  /* At once, for text can be measured on the page alone. */
  svg.replaceChildren(frame, plane);

  const isShaded = Array.from(chart.phases, (phase, place) => phase.shade && coloured.has(place) && (phase.lasts === undefined || phase.lasts * finest >= to - from));
  for (const [phase, , start, end] of chart.spans) {
    if (!isShaded[phase] || end < from || start > to) continue;
    plane.append(shaded(svgElement("rect", { class: "phase", x: round(xOf(start)), y: 0, width: Math.max(0.5, round(xOf(end) - xOf(start))), height: inner.height }), chart.phases[phase].shade));
  }
  const begun = chart.epochs.filter(([start]) => start >= from && start <= to);
  const running = runningEpoch(chart, from);
  if (running !== undefined) begun.unshift([from, running]);
  if (begun.length <= 80) {
    let freeFrom = 0;
    begun.forEach(([start, epoch], place) => {
      const x = round(xOf(start));
      plane.append(svgElement("line", { class: "epoch", x1: x, x2: x, y1: 0, y2: inner.height }));
      if (x < freeFrom) return;
      const spelled = place === 0 && inner.width > 320;
      const name = svgElement("text", { class: "epoch-name", x, y: -5 }, spelled ? `epoch ${epoch}` : epoch);
      frame.append(name);
      freeFrom = x + name.getComputedTextLength() + 8;
    });
  }
  for (const { at, text } of byteTicks(low, high, Math.max(2, Math.round(inner.height / 62))).ticks) {
    frame.append(svgElement("line", { class: "level", x1: 0, x2: inner.width, y1: round(yOf(at)), y2: round(yOf(at)) }));
    frame.append(svgElement("text", { class: "amount", x: -8, y: round(yOf(at)) + 4 }, text));
  }
  const wanted = Math.max(2, Math.round(inner.width / 95));
  const ticks = chart.steps?.length ? stepTicks(chart.steps, from, to, wanted) : (chart.x === "clock" ? timeTicks : countTicks)(from, to, wanted);
  for (const { at, text } of ticks) {
    frame.append(svgElement("line", { class: "tick", x1: round(xOf(at)), x2: round(xOf(at)), y1: inner.height, y2: inner.height + 4 }));
    const name = svgElement("text", { class: "moment", x: round(xOf(at)), y: inner.height + 18 }, text);
    frame.append(name);
    const most = inner.width + margin.right - name.getComputedTextLength() / 2;
    if (xOf(at) > most) name.setAttribute("x", round(most));
  }
  lines.forEach((line, place) => {
    const runs = drawn[place], paths = runs.map((run) => run.map(([x, y]) => `${round(xOf(x))} ${round(yOf(y))}`).join("L"));
    if (!runs.length) return;
    if (place === 0 && low === 0 && !line.culprit && !line.dash) {
      const d = runs.map((run, number) => `M${round(xOf(run[0][0]))} ${inner.height}L${paths[number]}L${round(xOf(run.at(-1)[0]))} ${inner.height}Z`).join("");
      plane.append(svgElement("path", { class: "area", d }));
    }
    plane.append(shaded(svgElement("path", { class: `line${line.culprit ? " culprit" : ""}`, ...dashing(line), d: paths.map((path) => `M${path}`).join("") }), line.shade));
    const few = runs.flat().length <= Math.max(1, inner.width / 14);
    for (const run of runs.filter((one) => few || one.length === 1)) {
      for (const [x, y] of run) plane.append(shaded(svgElement("circle", { class: "point", cx: round(xOf(x)), cy: round(yOf(y)), r: line.culprit ? 3 : 2 }), line.shade));
    }
  });
  for (const at of chart.censuses) {
    if (at >= from && at <= to) plane.append(svgElement("line", { class: "census", x1: round(xOf(at)), x2: round(xOf(at)), y1: inner.height - 5, y2: inner.height }));
  }
  if (chart.limit && chart.limit <= high && chart.limit >= low) {
    plane.append(svgElement("line", { class: "limit", x1: 0, x2: inner.width, y1: round(yOf(chart.limit)), y2: round(yOf(chart.limit)) }));
    plane.append(svgElement("text", { class: "limit-name", x: 6, y: round(yOf(chart.limit)) + 14 }, `limit ${bytes(chart.limit)}`));
  }
  frame.append(svgElement("line", { class: "foot", x1: 0, x2: inner.width, y1: inner.height, y2: inner.height }));
  return {
    left: margin.left / width, right: 1 - margin.right / width, top: margin.top / height, bottom: 1 - margin.bottom / height,
    x: [from, to], y: [low, high],
  };
};

/* The map of memory: what lies under the pointer, or under the arrow keys; classes switched on and off. */
{
  const [row, gap, label] = [0, 1, 2];
  /* Every block in order, with where its group's bytes reach before it. */
  const blocksOf = (map) => map.groups.flatMap(([words, segments], group) => {
    let start = 0;
    return segments.flatMap((amounts, place) => {
      const blocks = [];
      let inside = 0;
      for (let at = 0; at < amounts.length; at += 2) {
        blocks.push({ group, words, start: start + inside, size: amounts[at], kind: map.kinds[amounts[at + 1]], segment: place + 1, segments: segments.length });
        inside += amounts[at];
      }
      for (const block of blocks) block.whole = inside;
      start += inside;
      return blocks;
    });
  });
  /* How a drawing of so many rows was laid out: pixels a byte, and the first row of each group. */
  const layoutOf = (map, blocks, [width, rows]) => {
    const total = blocks.reduce((sum, block) => sum + block.size, 0), scale = width * rows / total, line = map.row[row] + map.row[gap];
    const ends = map.groups.map(() => 0);
    for (const block of blocks) ends[block.group] = block.start + block.size;
    let y = 0;
    const groups = ends.map((end) => {
      const top = y + map.row[label], lines = Math.max(1, Math.ceil(end * scale / width - 1e-6));
      y = top + lines * line;
      return { top, bottom: y, end };
    });
    return { width, height: y, scale, line, groups };
  };
  const pieces = (layout, block, thick) => {
    const drawn = [], to = (block.start + block.size) * layout.scale;
    for (let x = block.start * layout.scale; x < to - 1e-6;) {
      const place = Math.floor(x / layout.width + 1e-9), end = Math.min(to, (place + 1) * layout.width);
      drawn.push({ x: x - place * layout.width, y: layout.groups[block.group].top + place * layout.line, width: end - x, height: thick });
      x = end;
    }
    return drawn;
  };
  const rowsOf = (block) => {
    const [, words, shade] = block.kind, key = element("span", `key block ${shade}`), first = readingRow(words, bytes(block.size));
    key.style.setProperty("--key", `var(--${shade})`);
    first.prepend(key, " ");
    return [first, readingRow(`segment, ${block.segment.toLocaleString("en")} of ${block.segments.toLocaleString("en")}`, bytes(block.whole)), readingRow(block.words, "")];
  };
  const attach = (plot, map, blocks, shape) => {
    const layout = layoutOf(map, blocks, shape), svg = plot.querySelector("svg");
    const mark = document.createElementNS(svg.namespaceURI, "path");
    mark.setAttribute("class", "map-mark");
    svg.append(mark);
    const box = reader(plot, "Blocks of the map; move with the arrow keys");
    box.surface.setAttribute("aria-valuemax", String(blocks.length - 1));
    let at = 0;
    const hide = () => { mark.removeAttribute("d"); box.hide(); };
    const show = (index, x) => {
      at = index;
      const drawn = pieces(layout, blocks[at], map.row[row]);
      mark.setAttribute("d", drawn.map((one) => `M${one.x} ${one.y}h${one.width}v${one.height}h${-one.width}z`).join(""));
      box.surface.setAttribute("aria-valuenow", String(at));
      const last = drawn[drawn.length - 1], middle = last.x + last.width / 2;
      const frame = { left: 0, right: 1, x: [0, layout.width], top: last.y / layout.height, bottom: (last.y + last.height) / layout.height };
      box.show({ ...frame, below: frame.bottom }, x ?? middle, rowsOf(blocks[at]));
    };
    const under = (event) => {
      const room = svg.getBoundingClientRect(), share = layout.width / room.width;
      const x = Math.min(layout.width - 1e-3, Math.max(0, (event.clientX - room.left) * share)), y = (event.clientY - room.top) * share;
      const group = layout.groups.findIndex((one) => y >= one.top && y < one.bottom);
      if (group < 0) return hide();
      const { top, end } = layout.groups[group], wanted = (Math.floor((y - top) / layout.line) * layout.width + x) / layout.scale;
      if (wanted >= end) return hide();
      let low = 0, high = blocks.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1, block = blocks[middle];
        if (block.group < group || (block.group === group && block.start <= wanted)) low = middle; else high = middle - 1;
      }
      return show(low, x);
    };
    box.surface.addEventListener("pointermove", under);
    box.surface.addEventListener("pointerdown", under);
    box.surface.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    box.surface.addEventListener("blur", hide);
    box.surface.addEventListener("focus", () => { if (box.surface.matches(":focus-visible")) show(at); });
    box.surface.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: blocks.length - 1 };
      if (!(event.key in moves)) { if (event.key === "Escape") hide(); return; }
      event.preventDefault();
      show(Math.min(blocks.length - 1, Math.max(0, moves[event.key])));
    });
  };
  const switched = (figure, entry) => {
    const button = element("button", "switch");
    button.type = "button";
    button.append(...entry.childNodes);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const isOn = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isOn));
      for (const path of figure.querySelectorAll(`path[data-kind=${entry.dataset.kind}]`)) path.classList.toggle("faint", !isOn);
    });
    entry.append(button);
  };
  for (const figure of document.querySelectorAll("[data-map]")) {
    const map = data.maps[figure.dataset.map], blocks = blocksOf(map);
    if (!blocks.length) continue;
    for (const plot of figure.querySelectorAll("[data-shape]")) attach(plot, map, blocks, map.shapes[plot.dataset.shape]);
    for (const entry of figure.querySelectorAll(".legend li")) switched(figure, entry);
  }
}

/* The icicle: any census, growth between any two, zoom by click, search, arrow keys. */
{
  const leastShare = 0.004, mostRows = 12, faint = 14, deep = 46;
  const exactly = (amount) => `${amount < 0 ? "\u2212" : ""}${Math.abs(amount).toLocaleString("en-US")} bytes`;
  const signed = (amount) => (amount > 0 ? "+" : "") + bytes(amount);
  const percent = (share) => (share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(share * 100)} %`);
  const piece = (name, text, style = "") => { const made = element(name, style); made.textContent = text; return made; };

  /* By node its bytes or their change, and how much changed in it: as the analysis counts them. */
  const weigh = (tree, view) => {
    const column = (place) => tree.censuses[place].bytes[view.device] ?? tree.parents.map(() => 0);
    if (view.mode === "held") {
      const sizes = column(view.at);
      return { bytes: sizes, widths: sizes.map((size) => size ?? 0) };
    }
    const before = column(view.from), after = column(view.to);
    const net = after.map((size, node) => (size === null || before[node] === null ? null : size - before[node]));
    const parts = net.map(() => 0), widths = net.map(() => 0);
    const alike = tree.censuses[view.from].scope === tree.censuses[view.to].scope;
    for (let node = net.length - 1; node >= 0; node -= 1) {
      if (node === 0 && !alike) net[0] = parts[0];
      if (net[node] === null) continue;
      widths[node] += Math.abs(net[node] - parts[node]);
      if (node === 0) continue;
      parts[tree.parents[node]] += net[node];
      widths[tree.parents[node]] += widths[node];
    }
    return { bytes: net, widths };
  };

  const boxesBelow = (tree, weights, box) => {
    const children = tree.children[box.node];
    if (!children.length || box.kind === "rest" || box.kind === "smaller") return [];
    const scale = box.width / box.changed;
    const sum = (nodes, of) => nodes.reduce((total, node) => total + (of[node] ?? 0), 0);
    const shown = children
      .filter((node) => tree.kinds[node] !== "smaller" && weights.widths[node] * scale >= leastShare)
      .sort((a, b) => weights.widths[b] - weights.widths[a] || a - b);
    const small = children.filter((node) => !shown.includes(node) && weights.widths[node]);
    const parts = shown.map((node) => ({ node, kind: tree.kinds[node], bytes: weights.bytes[node], changed: weights.widths[node] }));
    const count = small.reduce((total, node) => total + (tree.counts[node] || 1), 0);
    const smaller = { node: box.node, kind: "smaller", bytes: sum(small, weights.bytes), changed: sum(small, weights.widths), count, small };
    const named = [...parts, smaller].filter((part) => part.changed * scale >= leastShare);
    if (!named.length) return [];
    const rest = { node: box.node, kind: "rest", bytes: box.bytes - sum(children, weights.bytes), changed: box.changed - sum(children, weights.widths) };
    let left = box.left;
    const placed = [];
    for (const part of [...named, ...(rest.changed * scale >= leastShare ? [rest] : [])]) {
      const width = part.changed * scale;
      placed.push({ ...part, left, width, row: box.row + 1, above: box });
      left += width;
    }
    return placed;
  };
  const layOut = (tree, weights, top) => {
    if (!(weights.widths[top] > 0)) return [];
    const boxes = [{ node: top, kind: tree.kinds[top], left: 0, width: 1, row: 0, bytes: weights.bytes[top], changed: weights.widths[top], above: null }];
    for (let at = 0; at < boxes.length; at += 1) {
      if (boxes[at].row + 1 < mostRows) boxes.push(...boxesBelow(tree, weights, boxes[at]));
    }
    return boxes;
  };

  const icicle = (root, drawnFirst) => {
    const trees = [drawnFirst, ...(drawnFirst.elsewhere ?? [])];
    const figures = Object.fromEntries([...root.querySelectorAll("[data-mode]")].map((figure) => [figure.dataset.mode, figure]));
    const choices = Object.fromEntries([...root.querySelectorAll("[data-choice]")].map((select) => [select.dataset.choice, select]));
    const search = root.querySelector("input"), path = root.querySelector(".icicle-path"), trail = path.querySelector("nav");
    const found = path.querySelector(".found"), reading = root.querySelector(".icicle-reading");
    const notes = root.querySelector(".icicle-notes");
    for (const one of trees) {
      one.children = one.parents.map(() => []);
      one.parents.forEach((parent, node) => { if (parent >= 0) one.children[parent].push(node); });
      one.view = { mode: one.mode, at: one.shown, from: one.first, to: one.last, device: one.device, top: 0 };
    }
    let tree = drawnFirst, view = tree.view;
    let weights, boxes = [], drawn = [], current = 0;

    const amount = (size) => (view.mode === "held" ? bytes(size) : signed(size));
    const wholeName = () => {
      const [first, last] = view.mode === "held" ? [view.at, view.at] : [view.from, view.to];
      const alike = tree.censuses[first].scope === tree.censuses[last].scope;
      return alike ? tree.censuses[last].whole : tree.words.both;
    };
    const labelOf = (box) => {
      if (box.kind === "rest") return tree.words.rest;
      if (box.kind === "smaller") return `${grouped(box.count, 0)} smaller one${box.count === 1 ? "" : "s"}`;
      return box.node ? tree.labels[box.node] : wholeName();
    };
    const wayTo = (node) => { const way = []; for (let at = node; at >= 0; at = tree.parents[at]) way.unshift(at); return way; };
    const pathOf = (node) => {
      const steps = wayTo(node).filter((at) => at && tree.kinds[at] !== "group");
      return steps.reduce((path, at, number) => {
        const label = tree.labels[at];
        if (tree.kinds[at] === "content") return `${path}: ${label}`;
        return !number ? label : label.startsWith("[") ? path + label : `${path}${tree.kinds[steps[number - 1]] === "owner" ? "\u00b7" : "."}${label}`;
      }, "");
    };
    const isOwn = (box) => box.kind === tree.kinds[box.node];
    const markOf = (box) => (isOwn(box) ? tree.marks[box.node] : undefined);
    const sharesOf = (box) => {
      const shares = [], parent = isOwn(box) ? tree.parents[box.node] : box.node;
      const share = (of, name) => { if (of && Math.sign(of) === Math.sign(box.bytes) && Math.abs(box.bytes) <= Math.abs(of)) shares.push(`${percent(box.bytes / of)} of ${view.mode === "held" ? "" : "the change in "}${name}`); };
      if (parent > 0) share(weights.bytes[parent], tree.labels[parent]);
      if (parent >= 0) share(weights.bytes[0], wholeName());
      return shares.join(", ");
    };
    const courseOf = (box) => {
      if (box.kind === "rest" || box.kind === "smaller") return "";
      const size = (place) => tree.censuses[place].bytes[view.device]?.[box.node] ?? null;
      const [first, last] = view.mode === "held" ? [view.from, view.at] : [view.from, view.to];
      if (first === last || size(first) === null || size(last) === null) return "";
      if (!box.node && tree.censuses[first].scope !== tree.censuses[last].scope) return "";
      const change = view.mode === "held" ? `, ${signed(size(last) - size(first))}` : "";
      const held = (place) => (size(place) ? bytes(size(place)) : "\u2013");
      return `${held(first)} (${tree.censuses[first].moment}) \u2192 ${held(last)} (${tree.censuses[last].moment})${change}`;
    };
    const read = (box) => {
      const name = piece("p", ""), size = piece("p", ""), mark = markOf(box);
      const inside = box.node ? ` in ${pathOf(box.node)}` : "";
      name.append(piece("code", isOwn(box) ? pathOf(box.node) || wholeName() : labelOf(box) + inside));
      if (isOwn(box) && tree.types[box.node]) name.append(" ", piece("span", tree.types[box.node], "of-type"));
      if (mark) {
        const link = piece("a", mark[2]);
        link.href = `#${mark[0]}`;
        name.append(" ", link);
      }
      size.append(piece("b", amount(box.bytes)), ` (${exactly(box.bytes)})`);
      const shares = sharesOf(box);
      if (shares) size.append(` \u00b7 ${shares}`);
      reading.replaceChildren(name, size, piece("p", courseOf(box), "sub"));
    };

    const focus = (index, move = true) => {
      if (!drawn[index]) return;
      drawn[current].tabIndex = -1;
      current = index;
      drawn[current].tabIndex = 0;
      if (move) drawn[current].focus({ preventScroll: true });
      read(boxes[current]);
    };
    const options = (select, texts) => select?.replaceChildren(...texts.map((text, place) => new Option(text, place)));
    const turnTo = (other) => {
      other.view.mode = view.mode;
      [tree, view] = [other, other.view];
      for (const name of ["at", "from", "to"]) options(choices[name], tree.censuses.map((census) => census.moment));
      options(choices.device, tree.devices);
      if (notes) notes.textContent = tree.notes;
    };
    const zoom = (node, move = false) => {
      view.top = node;
      draw();
      focus(0, move);
      announce(`Zoomed into ${node ? pathOf(node) : wholeName()}`);
    };
    const zoomAt = (index, move) => {
      const box = boxes[index];
      if (box.kind === "rest" || box.kind === "smaller") return;
      zoom(index ? box.node : Math.max(0, tree.parents[box.node]), move);
    };

    const boxElement = (box, index) => {
      const made = element("div", `box of-${box.kind}`), mark = markOf(box);
      if (view.mode === "growth") made.classList.add(box.bytes > 0 ? "up" : box.bytes < 0 ? "down" : "even");
      made.setAttribute("role", "treeitem");
      made.setAttribute("aria-level", String(box.row + 1));
      made.tabIndex = index ? -1 : 0;
      made.style.left = `${box.left * 100}%`;
      made.style.width = `${box.width * 100}%`;
      made.style.setProperty("--row", box.row);
      made.style.setProperty("--tint", `${faint + (deep - faint) * Math.abs(box.bytes) / Math.max(box.changed, 1)}%`);
      if (box.row + 1 === mostRows && isOwn(box) && tree.children[box.node].length) made.classList.add("deeper");
      if (mark) {
        made.className += ` accused ${mark[3]}`;
        made.id = `${mark[0]}-box`;
        const flag = piece("a", mark[1], `flag ${mark[3]}`);
        flag.href = `#${mark[0]}`;
        flag.title = mark[2];
        flag.tabIndex = -1;
        made.append(flag, " ");
      }
      made.append(piece("span", labelOf(box), "label"), " ");
      if (box.kind === "row") made.append(piece("span", tree.types[box.node].split(".").pop(), "type"), " ");
      made.append(piece("span", amount(box.bytes), "size number"), piece("span", ` ${[sharesOf(box), mark?.[2]].filter(Boolean).join(", ")}`, "unseen"));
      made.addEventListener("pointerenter", () => read(box));
      made.addEventListener("focus", () => read(box));
      made.addEventListener("click", (event) => { if (!event.target.closest("a")) zoomAt(index, true); });
      return made;
    };
    const drawTrail = () => {
      if (!view.top) { trail.replaceChildren(piece("span", "Click a box to zoom in; arrow keys move, Escape shows the whole.", "hint")); return; }
      trail.replaceChildren(...wayTo(view.top).map((node) => {
        const step = piece("button", node ? tree.labels[node] : wholeName());
        step.type = "button";
        step.disabled = node === view.top;
        step.addEventListener("click", () => zoom(node, true));
        return step;
      }));
    };
    const highlight = () => {
      const wanted = search.value.trim().toLowerCase();
      const matchesIn = (one, node) => node > 0 && [one.labels[node], one.names[node], one.types[node]].some((text) => text.toLowerCase().includes(wanted));
      const area = figures[view.mode].querySelector(".boxes");
      area?.classList.toggle("searched", wanted !== "");
      if (!wanted) { found.replaceChildren(); return; }
      const hits = new Set(tree.parents.map((_, node) => node).filter((node) => weights.widths[node] && matchesIn(tree, node)));
      const outermost = [...hits].filter((node) => !wayTo(node).slice(0, -1).some((above) => hits.has(above)));
      boxes.forEach((box, index) => drawn[index].classList.toggle("match", box.kind === "smaller" ? box.small.some((node) => hits.has(node)) : box.kind !== "rest" && hits.has(box.node)));
      if (!hits.size) {
        const others = trees.filter((one) => one !== tree && one.parents.some((_, node) => matchesIn(one, node))).map((one) => one.process);
        const there = others.length ? `, but in ${others.join("; ")}` : "";
        found.textContent = `${view.mode === "held" ? "Nothing found" : "Nothing found that changed"}${there && " here"}${there}`;
        return;
      }
      const total = outermost.reduce((sum, node) => sum + (weights.bytes[node] ?? 0), 0);
      const share = view.mode === "held" && weights.bytes[0] ? `, ${percent(total / weights.bytes[0])} of all` : "";
      found.replaceChildren(piece("b", amount(total)), ` in ${grouped(outermost.length, 0)} place${outermost.length === 1 ? "" : "s"}${share}`);
    };
    const draw = () => {
      weights = weigh(tree, view);
      if (!(weights.widths[view.top] > 0)) view.top = 0;
      boxes = layOut(tree, weights, view.top);
      current = 0;
      for (const [mode, figure] of Object.entries(figures)) figure.hidden = mode !== view.mode;
      const place = { ...view, device: tree.devices.indexOf(view.device), process: trees.indexOf(tree) };
      const needless = { at: view.mode !== "held", from: view.mode === "held", to: view.mode === "held", device: tree.devices.length < 2 };
      for (const [name, select] of Object.entries(choices)) {
        select.closest(".choice").hidden = needless[name] ?? false;
        select.value = String(place[name]);
      }
      root.dataset.showing = view.mode;
      for (const button of root.querySelectorAll("[data-show]")) button.setAttribute("aria-pressed", String(button.dataset.show === view.mode));
      const figure = figures[view.mode], moment = (place) => tree.censuses[place].moment;
      const shownMoment = view.mode === "held" ? moment(view.at) : `${moment(view.from)} \u2192 ${moment(view.to)}`;
      figure.querySelector(".moment").textContent = shownMoment;
      const whose = figure.querySelector(".process");
      if (whose) whose.textContent = tree.process;
      const total = figure.querySelector(".total");
      total.textContent = amount(weights.bytes[0]);
      total.title = exactly(weights.bytes[0]);
      const area = element("div", `boxes ${view.mode}`);
      area.setAttribute("role", boxes.length ? "tree" : "group");
      area.setAttribute("aria-label", [figure.querySelector(".chart-title").textContent, tree.process, shownMoment].filter(Boolean).join(", "));
      area.style.setProperty("--rows", String(1 + Math.max(0, ...boxes.map((box) => box.row))));
      drawn = boxes.map(boxElement);
      area.append(...drawn);
      if (!boxes.length) area.append(piece("p", "Nothing changed between these two."));
      figure.querySelector(".boxes, .sub").replaceWith(area);
      drawTrail();
      highlight();
      if (boxes.length) read(boxes[0]); else reading.replaceChildren();
    };

    /* Arrow keys: sideways to the next box of a row, down to the widest inside, up to what holds it. */
    const neighbour = (step) => {
      const row = boxes.map((box, index) => [box, index]).filter(([box]) => box.row === boxes[current].row).sort(([a], [b]) => a.left - b.left);
      const at = row.findIndex(([, index]) => index === current) + step;
      return row[at]?.[1];
    };
    const keys = {
      ArrowRight: () => neighbour(1),
      ArrowLeft: () => neighbour(-1),
      ArrowDown: () => boxes.findIndex((box) => box.above === boxes[current]),
      ArrowUp: () => boxes.indexOf(boxes[current].above),
      Home: () => 0,
    };
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && (view.top || search.value)) {
        event.preventDefault();
        search.value = "";
        zoom(0, event.target.getAttribute("role") === "treeitem");
        return;
      }
      if (event.target.getAttribute("role") !== "treeitem") return;
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); zoomAt(current, true); return; }
      if (!(event.key in keys)) return;
      event.preventDefault();
      focus(keys[event.key]() ?? -1);
    });
    root.addEventListener("pointerleave", () => { if (boxes.length) read(boxes[current]); });

    for (const [name, select] of Object.entries(choices)) {
      select.addEventListener("change", () => {
        if (name === "process") turnTo(trees[select.value]);
        else if (name === "device") view.device = tree.devices[select.value];
        else view[name] = Number(select.value);
        draw();
      });
    }
    for (const button of root.querySelectorAll("[data-show]")) {
      button.addEventListener("click", () => { view.mode = button.dataset.show; draw(); });
    }
    search.addEventListener("input", highlight);

    /* A culprit's card leads to its box: in the process and where it grew, else where it held most. */
    const nodeOf = (one, anchor) => Number(Object.keys(one.marks).find((place) => `${one.marks[place][0]}-box` === anchor) ?? -1);
    const grownIn = (one, node) => Math.max(...one.devices.map((device) => weigh(one, { mode: "growth", from: one.first, to: one.last, device }).widths[node]));
    const turnToNamed = (anchor) => {
      const other = trees[/^memory-of-(\d+)$/.exec(anchor)?.[1]];
      if (!other) return false;
      turnTo(other);
      draw();
      root.scrollIntoView({ block: "start" });
      root.querySelector("[data-choice=process]")?.focus({ preventScroll: true });
      return true;
    };
    const reveal = (anchor) => {
      if (turnToNamed(anchor)) return true;
      const marked = trees.map((one) => [one, nodeOf(one, anchor)]).filter(([, found]) => found >= 0);
      if (!marked.length) return false;
      const [other, node] = marked.reduce((best, one) => (grownIn(...one) > grownIn(...best) ? one : best));
      if (other !== tree) turnTo(other);
      search.value = "";
      const most = (device) => Math.max(...tree.censuses.map((census) => census.bytes[device]?.[node] ?? 0));
      view.device = tree.devices.reduce((best, device) => (most(device) > most(best) ? device : best), view.device);
      view.mode = "growth";
      view.top = 0;
      if (!(weigh(tree, view).widths[node] > 0)) {
        view.mode = "held";
        const sizes = tree.censuses.map((census) => census.bytes[view.device]?.[node] ?? 0);
        view.at = sizes.lastIndexOf(Math.max(...sizes));
      }
      draw();
      if (!boxes.some((box) => box.node === node)) { view.top = tree.parents[node]; draw(); }
      focus(boxes.findIndex((box) => box.node === node));
      root.scrollIntoView({ block: "start" });
      return true;
    };
    const follow = () => reveal(decodeURIComponent(location.hash.slice(1)));
    addEventListener("hashchange", follow);
    addEventListener("click", (event) => {
      if (event.target.closest("a")?.hash === location.hash && follow()) event.preventDefault();
    });

    for (const link of document.querySelectorAll("[data-undrawn]")) link.hidden = false;
    root.querySelector(".icicle-tools").hidden = path.hidden = reading.hidden = false;
    turnTo(tree);
    draw();
    follow();
  };
  for (const root of document.querySelectorAll("[data-icicle]")) {
    const tree = data.icicles?.[root.dataset.icicle];
    if (tree) icicle(root, tree);
  }
}

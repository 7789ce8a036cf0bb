/* The stretch of a chart that is shown, and the gestures that move it. */
const stretchOf = (whole, least, changed) => {
  const [first, last] = whole;
  let shown = [first, last];
  const show = (from, to) => {
    const length = Math.min(last - first, Math.max(least, to - from));
    const start = Math.min(last - length, Math.max(first, (from + to - length) / 2));
    shown = length >= (last - first) * 0.9999 ? [first, last] : [start, start + length];
    changed();
  };
  return {
    get shown() { return shown; },
    get isWhole() { return shown[0] === first && shown[1] === last; },
    get isClosest() { return shown[1] - shown[0] <= least * 1.0001; },
    whole,
    show,
    /* Larger than 1 shows more; what lies at "around" stays where it is. */
    zoom: (factor, around = (shown[0] + shown[1]) / 2) => show(around - (around - shown[0]) * factor, around + (shown[1] - around) * factor),
    pan: (by) => {
      const kept = Math.min(last - shown[1], Math.max(first - shown[0], by));
      show(shown[0] + kept, shown[1] + kept);
    },
    reset: () => show(first, last),
  };
};

/* Wheel, drag and pinch. A wheel alone scrolls the page until the chart was clicked. */
const gesturesOn = (surface, stretch, placeOf, perPixel, mark) => {
  const fingers = new Map();
  let dragged = null;
  surface.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const meant = event.ctrlKey || event.metaKey || document.activeElement === surface;
    if (sideways ? stretch.isWhole : !meant) return;
    event.preventDefault();
    if (sideways) stretch.pan((event.deltaX || event.deltaY) * perPixel());
    else stretch.zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) * 0.004), placeOf(event.clientX));
  }, { passive: false });
  surface.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    surface.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.clientX);
    const marks = event.pointerType === "mouse" && (stretch.isWhole || event.shiftKey);
    dragged = fingers.size === 1 ? { from: event.clientX, marks } : null;
    mark(null);
  });
  surface.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = fingers.get(event.pointerId);
    if (fingers.size === 2) {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      const apart = Math.max(20, Math.abs(event.clientX - other)), were = Math.max(20, Math.abs(before - other));
      stretch.zoom(were / apart, placeOf((event.clientX + other) / 2));
    } else if (dragged?.marks) {
      mark([dragged.from, event.clientX]);
    } else if (dragged && !stretch.isWhole) {
      stretch.pan((before - event.clientX) * perPixel());
    }
    fingers.set(event.pointerId, event.clientX);
  });
  const release = (event) => {
    fingers.delete(event.pointerId);
    mark(null);
    if (dragged?.marks && event.type === "pointerup" && Math.abs(event.clientX - dragged.from) > 6) {
      const ends = [placeOf(dragged.from), placeOf(event.clientX)];
      stretch.show(Math.min(...ends), Math.max(...ends));
    }
    dragged = null;
  };
  surface.addEventListener("pointerup", release);
  surface.addEventListener("pointercancel", release);
  surface.addEventListener("dblclick", (event) => (event.shiftKey ? stretch.reset() : stretch.zoom(0.4, placeOf(event.clientX))));
};

/* Amounts of memory and moments as the rest of the page writes them. */
const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const bytes = (amount) => {
  let rest = Math.abs(amount), unit = 0;
  while (rest >= 999.5 && unit < units.length - 1) { rest /= 1024; unit += 1; }
  const digits = rest.toFixed(unit === 0 || rest >= 99.95 ? 0 : 1).replace(/\.0$/, "");
  return `${amount < 0 ? "\u2212" : ""}${digits}\u00a0${units[unit]}`;
};
const clock = (seconds) => {
  const whole = Math.max(0, Math.round(seconds)), minutes = Math.floor(whole / 60);
  const two = (number) => String(number).padStart(2, "0");
  return minutes < 60 ? `${minutes}:${two(whole % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(whole % 60)}`;
};
/* The place of the point nearest to x among points in order of x; -1 where there is none. */
const nearest = (points, x) => {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle; else high = middle;
  }
  return points.length && Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? low : high;
};

/* Axes: round numbers, however closely one looks. */
const roundStep = (rough) => {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
};
const ticksBetween = (low, high, step) => {
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) ticks.push(at * step || 0);
  return ticks;
};
const decimalsOf = (step) => Math.max(0, Math.ceil(-Math.log10(step) - 1e-9) + (/2\.?5/.test(step.toPrecision(2)) ? 1 : 0));
const grouped = (number, decimals) => number.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });

/* Round amounts of memory; the unit is one in which the steps need two decimals at most. */
const byteTicks = (low, high, count) => {
  let scale = 1, unit = 0;
  while (high >= 999.5 * scale && unit < units.length - 1) { scale *= 1024; unit += 1; }
  let step = roundStep((high - low) / count / scale);
  while (unit > 0 && step < 0.01) { scale /= 1024; unit -= 1; step = roundStep((high - low) / count / scale); }
  if (unit === 0) step = Math.max(1, step);
  const decimals = step === Math.round(step) ? 0 : decimalsOf(step);
  const text = (tick) => (tick === 0 ? "0" : `${grouped(tick, decimals).replace("-", "\u2212")} ${units[unit]}`);
  return { step: step * scale, ticks: ticksBetween(low / scale, high / scale, step).map((tick) => ({ at: tick * scale, text: text(tick) })) };
};

const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const timeTicks = (from, to, count) => {
  const rough = (to - from) / count;
  const step = rough < 1 ? roundStep(rough) : timeSteps.find((known) => known >= rough) ?? roundStep(rough / 86400) * 86400;
  const decimals = step < 1 ? decimalsOf(step) : 0;
  return ticksBetween(from, to, step).map((at) => ({ at, text: exactClock(at, decimals) }));
};
const countTicks = (from, to, count) => {
  const step = Math.max(1, roundStep((to - from) / count));
  return ticksBetween(from, to, step).map((at) => ({ at, text: grouped(at, step < 10 && step % 1 ? 1 : 0) }));
};
/* Steps that halt where other things have room of their own: "halts" are places and the steps ended there. */
const stepAt = (halts, place) => {
  const after = halts.findIndex(([at]) => at >= place);
  if (after < 1) return halts.at(after)[1];
  const [[p0, s0], [p1, s1]] = halts.slice(after - 1, after + 1);
  return s0 + ((s1 - s0) * (place - p0)) / (p1 - p0 || 1);
};
const countWords = (unit, count) => (unit === "epoch" ? `${grouped(count, 2)} epochs done` : `${unit} ${grouped(Math.floor(count + 1e-6), 0)}`);
const placeOfStep = (halts, step) => {
  const after = halts.findIndex(([, ended]) => ended >= step - 1e-9);
  if (after < 1) return halts.at(after)[0];
  const [[p0, s0], [p1, s1]] = halts.slice(after - 1, after + 1);
  return p0 + ((p1 - p0) * (step - s0)) / (s1 - s0 || 1);
};
const stepTicks = (halts, from, to, count) => countTicks(stepAt(halts, from), stepAt(halts, to), count)
  .map(({ at, text }) => ({ at: placeOfStep(halts, at), text })).filter(({ at }) => at >= from && at <= to);
/* A moment with as many decimals as tell it apart from its neighbours. */
const exactClock = (seconds, decimals) => {
  if (!decimals) return clock(seconds);
  const whole = Math.floor(seconds + 1e-9), rest = (seconds - whole).toFixed(decimals);
  return rest.startsWith("1") ? clock(whole + 1) + rest.slice(1) : clock(whole) + rest.slice(1);
};

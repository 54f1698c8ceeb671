"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const percent = (share, digits) => (100 * share).toFixed(digits) + "%";

// ---- Counting. Radii are exact float64, sorted within each pair of true class and prediction; a tie with the chosen
// radius is not certified.

function unpacked(run) {
  const bytes = Uint8Array.from(atob(run.radii), (letter) => letter.charCodeAt(0));
  const radii = new Float64Array(bytes.buffer);
  const classes = run.classes.map((images) => ({ images, cells: new Map(), right: radii.subarray(0, 0) }));
  let start = 0;
  for (const [label, predicted, count] of run.cells) {
    const held = radii.subarray(start, start + count);
    classes[label].cells.set(predicted, held);
    if (label === predicted) classes[label].right = held;
    start += count;
  }
  return { name: run.name, images: run.images, classes };
}

function countAbove(sorted, radius) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > radius) high = middle;
    else low = middle + 1;
  }
  return sorted.length - low;
}

const runs = data.runs.map(unpacked);
const certified = (run, radius) =>
  run.classes.reduce((sum, of) => sum + countAbove(of.right, radius), 0) / run.images;

// ---- The radius, and everything that follows it.

const slider = document.getElementById("radius");
const axis = data.charts.curve;
const in255ths = (radius) => (radius === 0 ? "0" : `${Number((255 * radius).toPrecision(6))}/255`);
let speaking;

// The confusion matrix, or the most frequent mistakes.
function tally(radius) {
  all("[data-cell]").forEach((place) => {
    const [n, label, predicted] = place.dataset.cell.split("-").map(Number);
    const { images, cells } = runs[n].classes[label];
    const count = cells.has(predicted) ? countAbove(cells.get(predicted), radius) : 0;
    place.textContent = count;
    place.classList.toggle("none", count === 0);
    if (place.closest(".confusion")) place.style.setProperty("--part", images ? count / images : 0);
  });
  all("[data-rest]").forEach((place) => {
    const [n, label] = place.dataset.rest.split("-").map(Number);
    const { images, cells } = runs[n].classes[label];
    place.textContent = [...cells.values()].reduce((left, radii) => left - countAbove(radii, radius), images);
  });
}

function choose(radius) {
  const text = in255ths(radius);
  const shares = runs.map((run) => certified(run, radius));
  slider.value = 255 * radius;
  slider.setAttribute("aria-valuetext", `${text}, ${radius.toFixed(4)}`);
  document.getElementById("radius-text").textContent = `${text} = ${radius.toFixed(4)}`;
  all("[data-radius]").forEach((place) => (place.textContent = text));
  all("[data-certified]").forEach((place) => (place.textContent = percent(shares[place.dataset.certified], 2)));
  runs.forEach((run, n) =>
    run.classes.forEach((of, label) => {
      const share = of.images ? countAbove(of.right, radius) / of.images : 0;
      document.querySelector(`[data-bar="${n}-${label}"]`).style.width = percent(share, 2);
      document.querySelector(`[data-class="${n}-${label}"]`).textContent = of.images ? percent(share, 1) : "–";
    }),
  );
  tally(radius);
  all("[data-preset]").forEach((button) =>
    button.setAttribute("aria-pressed", String(Number(button.dataset.preset) === radius)),
  );
  document.getElementById("cursor").style.left = percent(radius / axis.x[1], 3);
  // Said once the slider rests: a screen reader would not keep up with every step.
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    const said = runs.map((run, n) => `${run.name} ${percent(shares[n], 2)}`).join(", ");
    document.getElementById("said").textContent = `Certified at ${text}: ${said}`;
  }, 300);
}

slider.addEventListener("input", () => choose(slider.valueAsNumber / 255));
all("[data-preset]").forEach((button) =>
  button.addEventListener("click", () => choose(Number(button.dataset.preset))),
);
document.getElementById("control").addEventListener("submit", (event) => event.preventDefault());

// ---- Reading values off a chart.

function nearest(points, x) {
  let best = points[0];
  for (const point of points) if (Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
  return best;
}

function valuesAt(key, x) {
  if (key === "curve") {
    const radius = Math.round(255 * x) / 255;
    const rows = runs.map((run, slot) => [slot, run.name, percent(certified(run, radius), 2)]);
    return { x: radius, title: in255ths(radius), rows };
  }
  const chart = data.charts[key];
  const at = nearest(chart.lines.reduce((a, b) => (a.points.length >= b.points.length ? a : b)).points, x)[0];
  const rows = [];
  for (const line of chart.lines) {
    const [place, value] = nearest(line.points, at);
    if (place === at && value !== null)
      rows.push([line.slot, line.name, chart.percent ? percent(value, 2) : value.toPrecision(4)]);
  }
  return { x: at, title: `epoch ${at}`, rows };
}

function row(slot, name, value) {
  const line = document.createElement("span");
  line.className = `s${slot}`;
  const dot = document.createElement("i");
  dot.className = "dot";
  const number = document.createElement("b");
  number.textContent = value;
  line.append(dot, name, number);
  return line;
}

all("[data-chart]").forEach((figure) => {
  const key = figure.dataset.chart;
  const [area, hair, readout] = ["area", "hair", "readout"].map((name) => figure.querySelector(`.${name}`));
  const [left, right] = data.charts[key].x;
  const position = (event) => {
    const box = area.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return left + part * (right - left);
  };
  const hide = () => (hair.hidden = readout.hidden = true);
  area.addEventListener("pointermove", (event) => {
    const { x, title, rows } = valuesAt(key, position(event));
    const part = (x - left) / (right - left);
    hair.hidden = readout.hidden = false;
    hair.style.left = percent(part, 3);
    readout.style.left = percent(part, 3);
    readout.classList.toggle("before", part > 0.5);
    readout.replaceChildren(title, ...rows.map((values) => row(...values)));
  });
  area.addEventListener("pointerleave", hide);
  area.addEventListener("pointercancel", hide);
  if (key === "curve") area.addEventListener("click", (event) => choose(Math.round(255 * position(event)) / 255));
});

// ---- The gallery.

const filters = document.getElementById("filters");

function filter() {
  const { kind, label, run } = Object.fromEntries(new FormData(filters));
  let shown = 0;
  all(".shelf").forEach((shelf) => {
    const wanted = kind === "" ? "overview" in shelf.dataset : shelf.dataset.kind === kind;
    shelf.hidden = !wanted || shelf.dataset.run !== run;
    if (shelf.hidden) return;
    let here = 0;
    all(".card", shelf).forEach((card) => {
      card.hidden = label === "" ? !("top" in card.dataset) : card.dataset.label !== label;
      here += !card.hidden;
    });
    shelf.querySelector("[data-none]").hidden = here > 0;
    shown += here;
  });
  document.getElementById("found").textContent = `${shown} image${shown === 1 ? "" : "s"} shown.`;
}

if (filters) {
  filters.addEventListener("change", filter);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filter();
}

choose(data.radius);

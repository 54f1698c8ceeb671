"use strict";

// The page keeps one image file. The server keeps nothing: every question carries the file.
const part = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const fixed = (value) => value.toFixed(3);

let file = null;      // what is asked about
let answer = null;    // the server's answer to it
let questions = 0;    // an answer that comes after a later question is dropped

async function ask(path, body) {
  let reply;
  try {
    reply = await fetch(path, body === undefined ? {} : { method: "POST", body });
  } catch {
    throw new Error("The server does not answer: check that lotnet demo is still running.");
  }
  if (!path.startsWith("/examples/") || !reply.ok) {
    const found = await reply.json();
    if (!reply.ok) throw new Error(found.error);
    return found;
  }
  return reply.blob();
}

function complain(sentence) {
  part("problem").textContent = `${sentence[0].toUpperCase()}${sentence.slice(1)}`;
  part("problem").hidden = false;
  part("waiting").hidden = true;
  part("answer").hidden = true;
  part("attack-card").hidden = true;
}

// No picture: an earlier one beside a complaint would look like the cause of it.
function forget() {
  part("preview").hidden = part("again").hidden = true;
  part("invite").hidden = false;
  part("changes").hidden = true;
}

async function choose(chosen, about) {
  const question = ++questions;
  if (chosen.size > about.largest_upload) {
    forget();
    complain(`The image is larger than ${about.largest_upload / 2 ** 20} MB: scale it down first.`);
    return;
  }
  part("problem").hidden = true;
  part("answer").hidden = true;
  part("attack-card").hidden = true;
  part("waiting").textContent = "Proving a radius ...";
  part("said").textContent = "";
  part("waiting").hidden = false;
  try {
    const found = await ask("/predict", chosen);
    if (question !== questions) return;
    file = chosen;
    answer = found;
    show();
  } catch (error) {
    if (question !== questions) return;
    forget();
    complain(error.message);
  }
}

function show() {
  part("waiting").hidden = true;
  part("answer").hidden = false;
  part("label").textContent = answer.label;
  part("radius").textContent = answer.radius_text;
  part("radius-255").textContent = `${answer.radius_255_text}/255`;
  part("meaning").textContent = answer.meaning;
  part("scope").textContent = answer.scope;
  part("said").textContent = `Predicted ${answer.label}, certified radius ${answer.radius_text}.`;
  part("shares").replaceChildren(...answer.likeliest.map(bar));
  part("preview").src = answer.picture;
  part("preview").hidden = part("again").hidden = false;
  part("invite").hidden = true;
  part("grey").hidden = !answer.grey;
  part("changes").textContent = `What the model reads: ${answer.changes.join("; ")}.`;
  part("changes").hidden = answer.changes.length === 0;

  // The scale reaches well beyond the radius, where the label may fall.
  const largest = Math.max(3 * answer.radius, 0.3);
  const slider = part("size");
  slider.max = largest;
  slider.step = largest / 300;
  slider.value = 0;
  const where = answer.radius / largest;
  // As far as the thumb's centre is when it stands at the radius.
  part("slider").style.setProperty("--part", `calc(0.625rem + ${where} * (100% - 1.25rem))`);
  part("mark").textContent = answer.radius > 0 ? `proved up to ${answer.radius_text}` : "nothing is proved";
  part("before").src = answer.picture;
  for (const id of ["after", "change"]) part(id).removeAttribute("src");  // images of an earlier attack
  part("after-text").textContent = "attacked";
  part("verdict").className = "verdict busy";
  part("verdict").textContent = "Attacking ...";
  part("attack-card").hidden = false;
  attack();
}

function bar({ label, share }) {
  const row = document.createElement("li");
  const [name, track, text] = ["name", "track", "part"].map((kind) => {
    const cell = document.createElement("span");
    cell.className = kind;
    return cell;
  });
  const filled = document.createElement("span");
  filled.style.width = `${100 * share}%`;
  name.textContent = label;
  name.title = label;
  text.textContent = percent(share);
  track.append(filled);
  row.append(name, track, text);
  return row;
}

// One attack at a time: while it runs the slider may move on, and the last place is attacked next.
let running = false;

async function attack() {
  const size = Number(part("size").value);
  part("size-text").textContent = fixed(size);
  part("size").setAttribute("aria-valuetext", `${fixed(size)}, radius ${answer.radius_text}`);
  if (running) return;
  running = true;
  part("verdict").classList.add("busy");
  const asked = answer;
  try {
    const found = await ask(`/attack?size=${size}`, file);
    if (asked === answer) judge(found);
  } catch (error) {
    if (asked === answer) complain(error.message);
  }
  running = false;
  const moved = asked !== answer || Number(part("size").value) !== size;
  if (moved && !part("attack-card").hidden) attack();
  else part("verdict").classList.remove("busy");
}

function judge(found) {
  part("after").src = found.picture;
  part("change").src = found.change;
  part("after-text").textContent = `attacked, at distance ${fixed(found.distance)}: ${found.label}`;
  const [kind, sentence] = found.held
    ? found.proved
      ? ["proved", `Still ${answer.label}. This is proved: no attack within the certified radius can change the label.`]
      : ["", `Still ${answer.label}. Nothing is proved beyond the radius: this attack failed, another may succeed.`]
    : found.proved
      ? ["fallen", `Now ${found.label}, inside the certified radius. This is a bug in lotnet: please report it.`]
      : ["fallen", `Now ${found.label} instead of ${answer.label}. Beyond the radius the label may change.`];
  part("verdict").className = `verdict ${kind}`;
  part("verdict").textContent = sentence;
}

function example({ label, path }, about) {
  const button = document.createElement("button");
  const image = document.createElement("img");
  image.src = path;
  image.alt = `test image: ${label}`;
  button.type = "button";
  button.title = label;
  button.append(image);
  button.addEventListener("click", async () => {
    try {
      await choose(await ask(path), about);
    } catch (error) {
      complain(error.message);
    }
  });
  return button;
}

async function start() {
  const about = await ask("/about");
  const [channels, height, width] = about.input_shape;
  const size = `${height} × ${width} ${channels === 1 ? "grey" : "color"} pixels`;
  part("about").textContent = `${about.model}, trained on ${about.data}, reads images of ${size}. For each image it ` +
    "gives a label and a radius: no smaller change of these pixels can change the label.";
  part("pixels").textContent = `the ${size} that the model reads, each from 0 to 1`;
  document.title = `${about.model}: lotnet demo`;
  part("examples").replaceChildren(...about.examples.map((item) => example(item, about)));
  part("examples-box").hidden = about.examples.length === 0;

  part("file").addEventListener("change", (event) => {
    if (event.target.files.length) choose(event.target.files[0], about);
    event.target.value = "";  // the same file may be chosen again
  });
  part("size").addEventListener("input", attack);
  const drop = part("drop");
  // Also beside the area: a browser would leave the page and open the file.
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  drop.addEventListener("dragover", () => drop.classList.add("over"));
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    if (event.dataTransfer.files.length) choose(event.dataTransfer.files[0], about);
  });
}

// The first test image shows at once what the page does.
async function begin() {
  await start();
  document.querySelector("#examples button")?.click();
}

begin().catch((error) => complain(error.message));

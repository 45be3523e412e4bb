// The page: asks the server, shows what it answers. Text from outside goes in by textContent only.

const $ = (id) => document.getElementById(id);
const form = $("search"), results = $("results"), status = $("status");
const limits = ["min_size", "max_size", "min_faces", "max_faces"];

let asked = null; // the question under way; a new one ends it
let shown = null; // the row whose part is shown
let cards = [];

// Asking -----------------------------------------------------------------------------------------

function filters() {
  const given = new URLSearchParams({ k: form.elements.k.value });
  for (const name of limits) {
    const value = form.elements[name].value.trim();
    if (value) given.set(name, value);
  }
  return given;
}

async function answer(url, options = {}) {
  const response = await fetch(url, options);
  const data = await response.json().catch(() => ({ error: `the server said ${response.status}` }));
  if (!response.ok) throw new Error(data.error ?? `the server said ${response.status}`);
  return data;
}

// One question at a time: `what` is said while it lasts, `done(rows)` gives the sentence after it.
async function ask(what, url, done, options = {}) {
  asked?.abort();
  const mine = (asked = new AbortController());
  say(what);
  document.body.setAttribute("aria-busy", "true");
  try {
    const rows = await answer(url, { ...options, signal: mine.signal });
    list(rows);
    say(rows.length ? done(rows) : "No part passes these filters.", rows.length === 0);
  } catch (error) {
    if (error.name === "AbortError") return;
    list([]);
    say(error instanceof TypeError ? "The server does not answer; is it still running?" : error.message, true);
  } finally {
    if (asked === mine) document.body.removeAttribute("aria-busy");
  }
}

const count = (rows) => (rows.length === 1 ? "1 part" : `${rows.length} parts`);

function byText(text, keep = true) {
  if (keep) remember({ q: text });
  const given = filters();
  given.set("q", text);
  return ask("Searching…", `api/search?${given}`, (rows) => `${count(rows)} for “${text}”, best first.`);
}

function byPart(id, name, keep = true) {
  if (keep) remember({ like: id });
  const given = filters();
  given.set("id", id);
  return ask("Searching…", `api/like?${given}`, (rows) => `${count(rows)} like ${name}, best first.`);
}

async function byFile(file) {
  remember({});
  const about = await ready;
  if (about && file.size > about.max_upload_mb * 1e6) {
    list([]);
    return say(`${file.name} is too large; allowed are ${about.max_upload_mb} MB.`, true);
  }
  return ask(`Reading ${file.name}…`, `api/shape?${filters()}`, (rows) => `${count(rows)} shaped like ${file.name}, best first.`, {
    method: "POST",
    headers: { "content-type": "application/octet-stream" },
    body: file,
  });
}

function say(text, bad = false) {
  $("examples").hidden = text !== "";
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

// The address tells the question, so that it can be kept, sent, and gone back to -------------------

function remember(question) {
  const next = new URLSearchParams(question);
  if (next.size) for (const [name, value] of filters()) if (name !== "k" || value !== "12") next.set(name, value);
  const address = next.size ? `?${next}` : location.pathname;
  if (address !== location.search) history.pushState(null, "", address);
}

function recall() {
  const given = new URLSearchParams(location.search);
  for (const name of limits) form.elements[name].value = given.get(name) ?? "";
  form.elements.k.value = given.get("k") ?? "12";
  if (form.elements.k.selectedIndex < 0) form.elements.k.selectedIndex = 0;
  form.elements.q.value = given.get("q") ?? "";
  $("filters").open = filtersOn() > 0;
  if (given.get("q")) byText(given.get("q"), false);
  else if (given.get("like")) byPart(given.get("like"), given.get("like"), false);
  else {
    asked?.abort();
    list([]);
    say("");
  }
}

function filtersOn() {
  const on = limits.filter((name) => form.elements[name].value.trim()).length;
  $("filters-on").textContent = on ? `(${on} on)` : "";
  return on;
}

// The list ---------------------------------------------------------------------------------------

function make(tag, text, properties = {}) {
  const node = Object.assign(document.createElement(tag), properties);
  if (text !== null) node.textContent = text;
  return node;
}

// A name may be broken where its words end, and only then anywhere.
function named(node, name) {
  const pieces = name.split(/(?<=[/_\-. ])/);
  node.replaceChildren(...pieces.flatMap((piece) => [piece, document.createElement("wbr")]).slice(0, -1));
  return node;
}

const narrow = matchMedia("(max-width: 56rem)"); // as in app.css

function list(rows) {
  // Pictures that are still on their way would keep the connections of the next question.
  for (const image of results.querySelectorAll("img")) image.removeAttribute("src");
  cards = rows.map(card);
  results.replaceChildren(...cards.map((button) => {
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
  $("found").hidden = rows.length === 0;
  shown = null;
  $("part").hidden = true;
  $("view").replaceChildren();
  if (!rows.length) return;
  cards[0].tabIndex = 0;
  if (!narrow.matches) show(rows[0], cards[0]); // there it would push the list off the screen
}

function card(row) {
  const button = make("button", null, { type: "button", className: "card", tabIndex: -1 });
  button.append(
    picture(row),
    named(make("span", null, { className: "name", dir: "auto" }), row.name),
    make("span", size(row), { className: "sub" }),
    make("span", [faces(row), `score ${row.score.toFixed(3)}`].filter(Boolean).join(" · "), { className: "sub" }),
  );
  button.addEventListener("click", () => {
    show(row, button);
    $("part-name").focus();
  });
  return button;
}

function picture(row) {
  const frame = make("span", null, { className: "picture" });
  if (!row.there) {
    frame.textContent = "no picture";
    return frame;
  }
  const image = make("img", null, { alt: "", width: 480, height: 360, decoding: "async" });
  image.addEventListener("error", () => frame.replaceChildren("no picture"));
  image.src = `picture?id=${encodeURIComponent(row.model_id)}`;
  frame.append(image);
  return frame;
}

const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: false });
const size = (row) => (row.size_mm ? `${row.size_mm.map((side) => number.format(side)).join(" × ")} mm` : "size unknown");
const faces = (row) => (row.faces === null ? "" : `${row.faces} ${row.faces === 1 ? "face" : "faces"}`);

results.addEventListener("keydown", (event) => {
  const here = cards.indexOf(document.activeElement);
  if (here < 0) return;
  const columns = cards.filter((one) => one.offsetTop === cards[0].offsetTop).length;
  const steps = {
    ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns,
    Home: -here, End: cards.length - 1 - here,
  };
  if (!(event.key in steps)) return;
  event.preventDefault();
  const there = cards[here + steps[event.key]];
  if (!there) return;
  cards[here].tabIndex = -1;
  there.tabIndex = 0;
  there.focus();
});

// One part ---------------------------------------------------------------------------------------

function show(row, button) {
  shown = { row, button };
  for (const one of cards) one.removeAttribute("aria-current");
  button.setAttribute("aria-current", "true");
  $("part").hidden = false;
  named($("part-name"), row.name);
  $("step").hidden = !row.there;
  $("step").href = `step?id=${encodeURIComponent(row.model_id)}`;
  const told = [
    ["Size", size(row)],
    ["Faces", row.faces],
    ["Edges", row.edges],
    ["Solids", row.solids],
    ["Volume", row.volume_mm3 === null ? null : `${number.format(row.volume_mm3)} mm³`],
    ["Surface", row.area_mm2 === null ? null : `${number.format(row.area_mm2)} mm²`],
    ["Unit of the file", row.unit],
    ["Score", row.score.toFixed(3)],
    ["File", row.path],
  ];
  $("facts").replaceChildren(...told.filter(([, value]) => value !== null).flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
  view(row);
}

function view(row) {
  const note = $("view-note");
  if (!row.there) {
    $("view").replaceChildren();
    note.textContent = "The STEP file is gone: no picture, no 3D view.";
    return;
  }
  const address = `model?id=${encodeURIComponent(row.model_id)}`;
  const viewer = document.createElement("model-viewer");
  const set = {
    src: address, alt: `3D view of ${row.name}`, "camera-controls": "", "touch-action": "pan-y",
    "interaction-prompt": "none", "shadow-intensity": "0.4", exposure: "1.1",
    "camera-orbit": "35deg 65deg auto", loading: "eager",
  };
  for (const [name, value] of Object.entries(set)) viewer.setAttribute(name, value);
  note.textContent = "Making the 3D view…";
  viewer.addEventListener("load", () => {
    if (shown?.row === row) note.textContent = "Drag or use the arrow keys to turn it, scroll to come closer.";
  });
  viewer.addEventListener("error", async () => {
    const response = await fetch(address);
    const said = response.ok ? "this browser cannot show 3D" : (await response.json()).error;
    if (shown?.row !== row) return; // another part may have been chosen meanwhile
    note.textContent = `No 3D view: ${said}`;
    $("view").replaceChildren();
  });
  $("view").replaceChildren(viewer);
}

function back() {
  shown?.button.focus();
}

$("back").addEventListener("click", back);
$("part").addEventListener("keydown", (event) => {
  if (event.key === "Escape") back();
});
$("like").addEventListener("click", async () => {
  const { row } = shown;
  form.elements.q.value = "";
  await byPart(row.model_id, row.name);
  cards[0]?.focus();
});

// Wiring -----------------------------------------------------------------------------------------

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = form.elements.q.value.trim();
  if (text) byText(text);
  else {
    say("Say what the part looks like, or drop a STEP file.", true);
    form.elements.q.focus();
  }
});
for (const example of document.querySelectorAll(".example")) {
  example.addEventListener("click", () => {
    form.elements.q.value = example.textContent;
    byText(example.textContent);
    form.elements.q.focus(); // the button goes
  });
}
form.addEventListener("input", filtersOn);
form.addEventListener("reset", () => {
  const text = form.elements.q.value; // clears the filters, not the question
  setTimeout(() => {
    form.elements.q.value = text;
    filtersOn();
  });
});

$("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  event.target.value = ""; // the same file may be chosen again
  if (file) byFile(file);
});

let inside = 0; // dragenter and dragleave come for every child
const carries = (event) => event.dataTransfer?.types.includes("Files");
addEventListener("dragenter", (event) => {
  if (carries(event)) document.body.classList.toggle("dragging", ++inside > 0);
});
addEventListener("dragleave", (event) => {
  if (carries(event)) document.body.classList.toggle("dragging", (inside = Math.max(0, inside - 1)) > 0);
});
addEventListener("dragover", (event) => {
  if (carries(event)) event.preventDefault();
});
addEventListener("drop", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  inside = 0;
  document.body.classList.remove("dragging");
  const [file] = event.dataTransfer.files;
  if (file) byFile(file);
});

addEventListener("popstate", recall);

const ready = answer("api/about").then((about) => {
  const kind = about.exact ? "" : `, recall at 10 ${about.recall_at_10.toFixed(3)}`;
  $("about").textContent = `${about.parts} parts, model ${about.model}${kind}`;
  return about;
}).catch(() => null);

recall();

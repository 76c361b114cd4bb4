// Keeps the page up to date. The server makes all words and lines; this script only puts them in place,
// as text. What must be added is copied from the templates in the page; what is gone is removed, so the
// page never has more elements than one view of the process.
"use strict";

const byId = (id) => document.getElementById(id);
const find = (parent, selector) => parent.querySelector(selector);
const form = document.body.dataset.form;

/// Sets a text, if it is another one: elements that stay as they are keep selection and focus.
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/// Makes the children of an element those of a list: one for each item, by key, in order.
function sync(parent, items, template, fill) {
  const old = new Map();
  for (const child of [...parent.children]) {
    if (child.dataset.key === undefined) continue;
    if (old.has(child.dataset.key)) child.remove();
    else old.set(child.dataset.key, child);
  }
  let at = parent.firstElementChild;
  items.forEach((item, index) => {
    const key = String(item.key ?? index);
    const name = typeof template === "function" ? template(item) : template;
    const child = old.get(key) ?? byId(name).content.firstElementChild.cloneNode(true);
    old.delete(key);
    set(child, "data-key", key);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    fill(child, item);
  });
  for (const child of old.values()) child.remove();
}

function fillNote(element, note) {
  set(element, "class", note.tone);
  put(element, note.text);
}

function fillBar(element, bar) {
  set(element, "class", bar.tone);
  put(find(element, ".name"), bar.name);
  put(find(element, ".percent"), bar.percent);
  put(find(element, ".value"), bar.value);
  const progress = find(element, "progress");
  progress.value = bar.share;
  set(progress, "aria-label", bar.name);
}

function fillTile(element, tile) {
  put(find(element, "dt"), tile.name);
  put(find(element, "dd"), tile.value);
}

function fillGraph(element, graph) {
  set(element, "class", graph.tone);
  put(find(element, ".name"), graph.name);
  put(find(element, ".now"), graph.now);
  put(find(element, ".most"), graph.most);
  put(find(element, ".since"), graph.since);
  set(find(element, ".area"), "d", graph.area);
  set(find(element, ".line"), "d", graph.line);
}

function fillAction(element, action) {
  set(element, "data-question", action.question);
  const fields = [["form", form], ...action.fields];
  if (action.question) fields.push(["ask", action.question]);
  const inputs = find(element, ".fields");
  const text = JSON.stringify(fields);
  if (inputs.dataset.text !== text) {
    inputs.dataset.text = text;
    inputs.replaceChildren(...fields.map(([name, value]) => {
      const input = document.createElement("input");
      input.type = "hidden";
      input.name = name;
      input.value = value;
      return input;
    }));
  }
  const typed = find(element, "input[type=text]");
  if (typed) {
    typed.name = action.input;
    set(typed, "placeholder", action.hint);
    set(typed, "aria-label", action.label);
  }
  const button = find(element, "button");
  set(button, "class", action.tone);
  put(button, action.label);
}

function syncActions(parent, actions) {
  sync(parent, actions, (action) => (action.input ? "action-input" : "action"), fillAction);
}

function fillRow(element, row, columns) {
  const cells = row.cells.map((text, index) => ({ text, column: columns[index] }));
  sync(element, cells, "cell", (cell, { text, column }) => {
    set(cell, "class", column.is_number ? "number" : "text");
    set(cell, "data-name", column.name);
    put(find(cell, "span"), text);
  });
  let place = find(element, ".do");
  if (row.actions.length === 0) {
    place?.remove();
    return;
  }
  if (!place) {
    place = document.createElement("td");
    place.className = "do";
    const actions = document.createElement("div");
    actions.className = "actions";
    place.append(actions);
    element.append(place);
  }
  syncActions(find(place, ".actions"), row.actions);
}

function fillTable(element, table) {
  set(element, "class", table.columns.length <= 3 ? "small" : "wide");
  put(find(element, "caption"), table.title);
  sync(find(element, "thead tr"), table.columns, "column", (cell, column) => {
    set(cell, "class", column.is_number ? "number" : "text");
    put(cell, column.name);
  });
  sync(find(element, "tbody"), table.rows, "row", (row, item) => fillRow(row, item, table.columns));
}

function fillMessage(element, message) {
  set(element, "class", message.tone);
  put(find(element, "time"), message.at);
  put(find(element, ".text"), message.text);
}

function fillSection(element, section) {
  put(find(element, ".kind"), section.kind);
  put(find(element, ".what"), section.what);
  const state = find(element, ".state");
  set(state, "class", `state ${section.state.tone}`);
  put(state, section.state.text);
  sync(find(element, ".notes"), section.notes, "note", fillNote);
  sync(find(element, ".bars"), section.bars, "bar", fillBar);
  sync(find(element, ".tiles"), section.tiles, "tile", fillTile);
  sync(find(element, ".graphs"), section.graphs, "graph", fillGraph);
  syncActions(find(element, ":scope > .actions"), section.actions);
  sync(find(element, ".tables"), section.tables, "table", fillTable);
  sync(find(element, ".messages"), section.messages, "message", fillMessage);
}

function show(view) {
  if (view.run !== document.body.dataset.run) {
    // Another process has the address now: its forms have another number.
    location.reload();
    return;
  }
  if (document.title !== view.title) document.title = view.title;
  put(byId("heading"), view.heading);
  put(byId("facts"), view.facts.join(" · "));
  put(byId("command"), view.command);
  sync(byId("notes"), view.notes, "note", fillNote);
  syncActions(byId("actions"), view.actions);
  sync(byId("sections"), view.sections, "section", fillSection);
}

// The connection.

const RETRY_MS = [1000, 2000, 5000];
let heard = Date.now();
let taken = "";
let failures = 0;
let state = "waiting";

function now(name, text) {
  state = name;
  set(document.body, "data-state", name);
  put(byId("said"), text);
}

function lost() {
  const seconds = Math.round((Date.now() - heard) / 1000);
  now("lost", `connection lost ${seconds} s ago, trying again`);
}

function connect() {
  const events = new EventSource("/events");
  const take = (event) => {
    const view = JSON.parse(event.data);
    heard = Date.now();
    failures = 0;
    taken = view.taken;
    show(view);
    return view;
  };
  events.addEventListener("view", (event) => {
    take(event);
    now("live", `live, ${taken}`);
  });
  events.addEventListener("end", (event) => {
    const view = take(event);
    now("ended", `it has ended; these are the last figures, of ${view.taken}`);
    events.close();
    setTimeout(connect, RETRY_MS[RETRY_MS.length - 1]);
  });
  events.addEventListener("error", () => {
    events.close();
    if (state !== "ended") lost();
    setTimeout(connect, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
    failures += 1;
  });
  // A connection that is cut without a word.
  const silent = setInterval(() => {
    if (events.readyState === EventSource.CLOSED) clearInterval(silent);
    else if (state === "live" && Date.now() - heard > 10000) {
      events.dispatchEvent(new Event("error"));
      clearInterval(silent);
    }
  }, 1000);
}

setInterval(() => {
  if (state === "lost") lost();
}, 1000);

// What can be done, without leaving the page.

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const target = event.target;
  const data = new URLSearchParams(new FormData(target));
  const question = target.dataset.question;
  if (question) {
    if (!confirm(question)) return;
    data.set("sure", "1");
  }
  const reply = byId("reply");
  fetch("/do", { method: "POST", headers: { Accept: "application/json" }, body: data })
    .then((response) => response.json())
    .then(({ ok, text }) => {
      set(reply, "class", ok ? "good" : "bad");
      put(reply, text);
      if (ok) target.reset();
    })
    .catch(() => {
      set(reply, "class", "bad");
      put(reply, "The process does not answer; nothing is known of what you asked for.");
    });
});

connect();

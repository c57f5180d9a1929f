// What all widgets share: elements, and a transcript that keeps in step with the kernel. The HTML that comes in was
// sanitised in Python; everything else is placed as text.

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function button(text, title, onclick) {
  return element("button", { type: "button", textContent: text, title, onclick });
}

function fragment(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content;
}

// One change of a growing Markdown text (nbagents/render/changes.py says what each means).
function changeBlock(blocks, op) {
  const block = blocks.children[op.i];
  const tail = block?.querySelector("[data-tail]");
  if (op.op === "block") {
    (block ?? blocks.appendChild(element("div", { className: "nbagents-block" }))).replaceChildren(fragment(op.html));
  } else if (op.op === "item") {
    const holder = block.firstElementChild.tBodies?.[0] ?? block.firstElementChild;
    const old = holder.children[op.j];
    old ? old.replaceWith(fragment(op.html)) : holder.append(fragment(op.html));
  } else if (op.op === "append") {
    // A long fence grows by nodes, so that one huge text is not laid out anew; elsewhere nodes are counted by `tail`.
    const last = tail.lastChild;
    last?.nodeType === Node.TEXT_NODE && tail.tagName !== "CODE" ? last.appendData(op.text) : tail.append(op.text);
  } else if (op.op === "tail") {
    while (tail.childNodes.length > op.keep) tail.lastChild.remove();
    tail.append(fragment(op.html));
  } else if (op.op === "close") {
    tail.removeAttribute("data-tail");
  } else if (op.op === "cut") {
    while (blocks.children.length > op.n) blocks.lastElementChild.remove();
  }
}

// One change of a transcript (nbagents/render/transcript.py says what each means); `items` are the elements by key.
function changeTranscript(log, items, op, model) {
  if (op.op === "add") {
    items[op.key] = element("div", { className: `nbagents-item nbagents-${op.kind}` });
    log.append(items[op.key]);
  }
  const item = items[op.key];
  if (op.op === "drop") {
    item.remove();
  } else if (op.op === "blocks") {
    const blocks = item.querySelector(".nbagents-blocks");
    op.ops.forEach((change) => changeBlock(blocks, change));
  } else if (op.op === "append") {
    item.querySelector("[data-part]").append(op.text);
  } else {
    const wasOpen = item.querySelector("details")?.open;
    item.replaceChildren(fragment(op.html));
    if (wasOpen) item.querySelector("details")?.setAttribute("open", "");
    if (op.request) item.firstElementChild.append(approvalButtons(op.request, model));
  }
}

// Each view keeps the model's `snapshot` up to date, for views that come later: the kernel sends it once.
function keepWhole(whole, { type, seq, ops }) {
  if (type === "whole" && seq > whole.seq) Object.assign(whole, { seq, ops: [...ops] });
  if (type !== "patch" || seq !== whole.seq + 1) return;
  whole.ops.push(...ops);
  whole.seq = seq;
}

function approvalButtons(id, model) {
  const answer = (approved) => {
    row.querySelectorAll("button").forEach((one) => (one.disabled = true));
    model.send({ type: "answer", id, approved });
  };
  const approve = button("Approve", "Let it run with exactly these arguments", () => answer(true));
  const deny = button("Deny", "Do not run it; the agent is told", () => answer(false));
  approve.className = "nbagents-primary";
  const row = element("div", { className: "nbagents-answer" }, approve, deny);
  return row;
}

// The transcript of `model`: patches are drawn once a frame, a reader at the bottom stays there, and a view that comes
// late or misses a patch asks for the whole.
function transcriptLog({ model }) {
  const log = element("div", { className: "nbagents-log", tabIndex: 0 });
  let items = [];
  let seen = -1;
  let asked = false;
  let frame = 0;
  let news = [];

  const atBottom = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const sync = () => model.send({ type: "sync", seq: seen });
  const change = (op) => changeTranscript(log, items, op, model);
  const take = ({ type, seq, ops }) => {
    if (type === "whole" && seq !== seen) {
      log.replaceChildren();
      items = [];
    } else if (type === "whole" || seq !== seen + 1) {
      if (seq > seen && !asked) sync();
      asked ||= seq > seen;
      return;
    }
    ops.forEach(change);
    seen = seq;
    asked = false;
  };
  const draw = () => {
    frame = 0;
    const follow = atBottom();
    news.splice(0).forEach(take);
    if (follow) log.scrollTop = log.scrollHeight;
  };
  const hear = (message) => {
    if (message.type !== "patch" && message.type !== "whole") return;
    keepWhole(model.get("snapshot"), message);
    news.push(message);
    frame ||= requestAnimationFrame(draw);
  };
  const snapshot = () => {
    const { seq, ops } = model.get("snapshot");
    if (seq > seen) hear({ type: "whole", seq, ops: [...ops] });
  };
  const busy = () => log.setAttribute("aria-busy", String(model.get("state") !== "idle"));

  log.setAttribute("role", "log");
  log.setAttribute("aria-label", `Conversation with ${model.get("label")}`);
  log.addEventListener("click", loadImage);
  model.on("msg:custom", hear);
  model.on("change:snapshot", snapshot);
  model.on("change:state", busy);
  busy();
  snapshot();
  draw();
  sync();
  return log;
}

// An image from elsewhere is a link until a person asks for it: fetching it tells its host that it was read.
function loadImage(event) {
  const link = event.target.closest("a.nbagents-image");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  link.replaceWith(element("img", { referrerPolicy: "no-referrer", alt: link.textContent, src: link.href }));
}

// What goes on, and the button that stops it; `show(true)` says that something was sent that the kernel has not heard.
function runBar({ model }) {
  const words = element("span");
  const stop = button("Stop", "Stop (Esc)", () => model.send({ type: "stop" }));
  const bar = element("div", { className: "nbagents-bar" }, element("span", { className: "nbagents-pulse" }), words, stop);
  const show = (unheard) => {
    const state = unheard === true ? "sent" : model.get("state");
    bar.hidden = state === "idle";
    words.textContent = { sent: "Sent …", stopping: "Stopping …", running: "Answering …", idle: "" }[state];
    if (!model.get("can_stop")) words.textContent += " The kernel's interrupt button stops it.";
    stop.hidden = !model.get("can_stop");
    stop.disabled = state === "stopping";
  };
  words.setAttribute("role", "status");
  model.on("change:state", show);
  model.on("change:can_stop", show);
  show();
  return { bar, show };
}

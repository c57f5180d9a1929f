// Chat: a transcript, and a field to write in.

export default {
  render({ model, el }) {
    const log = transcriptLog({ model });
    const { bar, show } = runBar({ model });
    const queue = element("div", { className: "nbagents-queue" });
    let unheard = []; // what was sent and the kernel has not answered to: it may be busy
    const said = element("div", { className: "nbagents-bar", hidden: true });
    const field = element("textarea", { rows: 1, placeholder: `Message ${model.get("label")} …` });
    const send = button("Send", "Send (Enter)", () => submit());
    const root = element("div", { className: "nbagents nbagents-view nbagents-chat" });
    root.style.setProperty("--nbagents-height", `${model.get("height")}px`);
    root.append(log, queue, bar, said, element("div", { className: "nbagents-composer" }, field, send));
    el.append(root, savedCopyHidden(model));

    send.className = "nbagents-primary";
    field.setAttribute("aria-label", `Message to ${model.get("label")}`);
    field.setAttribute("data-lm-suppress-shortcuts", "true");
    said.setAttribute("role", "alert");

    function submit() {
      const text = field.value;
      if (!text.trim()) return;
      model.send({ type: "send", text });
      unheard.push(text);
      field.value = "";
      said.hidden = true;
      resize();
      showQueue();
    }
    function showQueue() {
      const bubble = (text) => element("div", { dir: "auto", title: "Waits for its turn", textContent: text });
      show(unheard.length > 0);
      queue.replaceChildren(...[...model.get("waiting"), ...unheard].map(bubble));
    }
    function heard() {
      unheard = [];
      showQueue();
    }
    function resize() {
      field.style.height = "auto";
      field.style.height = `${field.scrollHeight + 2}px`;
      send.disabled = !field.value.trim();
    }
    field.addEventListener("input", resize);
    root.addEventListener("keydown", (event) => {
      event.stopPropagation(); // else Lab takes typing for its own shortcuts
      if (event.key === "Escape" && !bar.hidden) model.send({ type: "stop" });
      if (event.key === "Enter" && event.target === field && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        submit();
      }
    });
    model.on("change:waiting", heard);
    model.on("change:state", heard);
    model.on("msg:custom", (message) => {
      if (message.type !== "refused") return;
      heard();
      field.value ||= message.text;
      said.textContent = message.why;
      said.hidden = false;
      resize();
    });
    resize();
    showQueue();
  },
};

// The transcript is stored in the notebook as an output of its own; where this widget lives, that copy is hidden.
function savedCopyHidden(model) {
  const copy = `[data-nbagents-saved="${CSS.escape(model.get("saved_id"))}"]`;
  return element("style", { textContent: `${copy}, .jp-OutputArea-child:has(${copy}) { display: none; }` });
}

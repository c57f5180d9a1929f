// TranscriptView: a transcript, with Stop while a run goes on.

export default {
  render({ model, el }) {
    const root = element("div", { className: "nbagents nbagents-view" }, transcriptLog({ model }), runBar({ model }).bar);
    root.addEventListener("keydown", (event) => event.key === "Escape" && model.send({ type: "stop" }));
    el.append(root);
  },
};

// Shows the picture that the kernel draws. It is parsed as XML, and what it says is text: nothing in it is HTML.
function render({ model, el }) {
  const frame = document.createElement("div");
  frame.className = "telegrad-graph";
  frame.style.cssText = "max-height:40em;overflow:auto";
  const caption = document.createElement("div");
  caption.className = "telegrad-caption";
  caption.style.cssText = "opacity:0.6;font-size:smaller";
  el.replaceChildren(frame, caption);

  // The frame stays, and with it the part of a large picture that the reader has scrolled to.
  const draw = () => {
    const picture = new DOMParser().parseFromString(model.get("svg"), "image/svg+xml").documentElement;
    if (picture.localName === "svg") frame.replaceChildren(document.importNode(picture, true));
  };
  const tell = () => {
    caption.textContent = model.get("caption");
  };
  draw();
  tell();
  model.on("change:svg", draw);
  model.on("change:caption", tell);
  return () => {
    model.off("change:svg", draw);
    model.off("change:caption", tell);
  };
}

export default { render };

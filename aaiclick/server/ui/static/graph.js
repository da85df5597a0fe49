// Zoom and pan of a graph. The server renders the SVG; scripts change only its viewBox.
function startGraph(canvas) {
  const svg = canvas.querySelector("svg.graph"), scroll = canvas.querySelector(".scroll");
  const full = svg.viewBox.baseVal, view = { x: full.x, y: full.y, scale: 1 };
  canvas.classList.add("zoom");
  let graphWidth = full.width, graphHeight = full.height, touched = false;
  const size = () => ({ width: scroll.clientWidth, height: scroll.clientHeight });

  // Smallest initial scale, so that text stays readable; a shade marks a graph that continues beyond the frame.
  const minScale = () => (size().width < 600 ? 0.4 : 0.7);

  const frame = () => {
    const { width, height } = size();
    const scale = Math.max(minScale(), Math.min(1, width / graphWidth));
    canvas.style.setProperty("--graph-height", `${Math.min(innerHeight * 0.68, Math.max(140, graphHeight * scale))}px`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
  };
  const draw = () => {
    const { width, height } = size();
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${width / view.scale} ${height / view.scale}`);
    canvas.classList.toggle("more", view.x + width / view.scale < graphWidth - 1);
  };
  const fit = (smallest) => {
    frame();
    const { width, height } = size();
    view.scale = Math.max(smallest, Math.min(1.15, width / graphWidth, height / graphHeight));
    view.x = Math.min(0, (graphWidth - width / view.scale) / 2);
    view.y = Math.min(0, (graphHeight - height / view.scale) / 2);
    touched = false;
    frame();
    draw();
  };
  const zoom = (factor, x, y) => {
    const { width, height } = size(), scale = Math.min(4, Math.max(0.05, view.scale * factor));
    x ??= width / 2; y ??= height / 2;
    view.x += x / view.scale - x / scale;
    view.y += y / view.scale - y / scale;
    view.scale = scale;
    touched = true;
    draw();
  };
  const move = (x, y) => {
    view.x += x / view.scale;
    view.y += y / view.scale;
    touched = true;
    draw();
  };
  scroll.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80] }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(...step);
  });
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && (event.shiftKey || event.deltaX)) {
      event.preventDefault();
      move(event.deltaX || event.deltaY, 0);
    }
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const bounds = scroll.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - bounds.left, event.clientY - bounds.top);
  }, { passive: false });
  let drag = null;
  scroll.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, from: { ...view }, moved: false }; });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = touched = true;
    view.x = drag.from.x - dx / view.scale;
    view.y = drag.from.y - dy / view.scale;
    draw();
  });
  addEventListener("pointerup", () => { if (drag) setTimeout(() => { drag = null; }, 0); });
  scroll.addEventListener("click", (event) => { if (drag?.moved) event.preventDefault(); }, true);
  scroll.addEventListener("dragstart", (event) => event.preventDefault());
  for (const [name, action] of [["in", () => zoom(1.3)], ["out", () => zoom(1 / 1.3)], ["fit", () => fit(0.05)]]) {
    document.querySelector(`[data-zoom="${name}"]`)?.addEventListener("click", action);
  }
  addEventListener("resize", () => { if (touched) { frame(); draw(); } else fit(minScale()); });
  document.addEventListener("refreshed", () => {
    graphWidth = Number(svg.dataset.width) || graphWidth;
    graphHeight = Number(svg.dataset.height) || graphHeight;
    frame();
    draw();
  });
  fit(minScale());
}

export function startGraphs() {
  for (const canvas of document.querySelectorAll("[data-graph]")) startGraph(canvas);
}

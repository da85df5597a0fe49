// Zoom and pan of a graph: the drawing is made by the server, only its frame moves.
function start(canvas) {
  const svg = canvas.querySelector("svg.graph"), scroll = canvas.querySelector(".scroll");
  const full = svg.viewBox.baseVal, view = { x: full.x, y: full.y, scale: 1 };
  canvas.classList.add("zoom");
  let wide = full.width, tall = full.height, touched = false;
  const size = () => ({ width: scroll.clientWidth, height: scroll.clientHeight });

  // Words stay words: what does not fit is a drag, an arrow key or a push of "fit" away, and a shade says that it is
  // there. In a narrow window the whole comes first, as far as it can be made out.
  const least = () => (size().width < 600 ? 0.4 : 0.7);

  const frame = () => {
    const { width, height } = size();
    const scale = Math.max(least(), Math.min(1, width / wide));
    canvas.style.setProperty("--tall", `${Math.min(innerHeight * 0.68, Math.max(140, tall * scale))}px`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
  };
  const draw = () => {
    const { width, height } = size();
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${width / view.scale} ${height / view.scale}`);
    canvas.classList.toggle("more", view.x + width / view.scale < wide - 1);
  };
  const fit = (smallest) => {
    frame();
    const { width, height } = size();
    view.scale = Math.max(smallest, Math.min(1.15, width / wide, height / tall));
    view.x = Math.min(0, (wide - width / view.scale) / 2);
    view.y = Math.min(0, (tall - height / view.scale) / 2);
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
    const way = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80] }[event.key];
    if (!way || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move(...way);
  });
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && (event.shiftKey || event.deltaX)) {
      event.preventDefault();
      move(event.deltaX || event.deltaY, 0);
    }
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const place = scroll.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - place.left, event.clientY - place.top);
  }, { passive: false });
  let held = null;
  scroll.addEventListener("pointerdown", (event) => { held = { x: event.clientX, y: event.clientY, from: { ...view }, moved: false }; });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    const dx = event.clientX - held.x, dy = event.clientY - held.y;
    if (Math.abs(dx) + Math.abs(dy) > 4) held.moved = touched = true;
    view.x = held.from.x - dx / view.scale;
    view.y = held.from.y - dy / view.scale;
    draw();
  });
  addEventListener("pointerup", () => { if (held) setTimeout(() => { held = null; }, 0); });
  scroll.addEventListener("click", (event) => { if (held?.moved) event.preventDefault(); }, true);
  scroll.addEventListener("dragstart", (event) => event.preventDefault());
  for (const [name, does] of [["in", () => zoom(1.3)], ["out", () => zoom(1 / 1.3)], ["fit", () => fit(0.05)]]) {
    document.querySelector(`[data-zoom="${name}"]`)?.addEventListener("click", does);
  }
  addEventListener("resize", () => { if (touched) { frame(); draw(); } else fit(least()); });
  document.addEventListener("refreshed", () => {
    wide = Number(svg.dataset.wide) || wide;
    tall = Number(svg.dataset.tall) || tall;
    frame();
    draw();
  });
  fit(least());
}

export function startGraphs() {
  for (const canvas of document.querySelectorAll("[data-graph]")) start(canvas);
}

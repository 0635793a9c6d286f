// Clicks on the picture: each cell takes the action that the environment declares for it.

import { draw } from "./dom.js";

/** Make cells of the picture clickable: `rows` are equal cells from the upper left, each an action or null. */
export function clickable(player, rows, { accepts, act }) {
  const { frame, image, overlay } = player;
  const cell = draw("rect", { class: "cell", hidden: true });
  overlay.append(cell);

  const under = ({ clientX, clientY }) => {
    if (image.hidden) return null;
    const picture = overlay.viewBox.baseVal; // the image itself has no size while the next one is loaded
    const [width, height] = [picture.width / rows[0].length, picture.height / rows.length];
    const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(overlay.getScreenCTM().inverse());
    const [column, row] = [Math.floor(x / width), Math.floor(y / height)];
    const action = rows[row]?.[column];
    return action && accepts(action) ? { action, box: { x: column * width, y: row * height, width, height } } : null;
  };
  const mark = (found) => {
    for (const [name, value] of Object.entries(found?.box ?? {})) cell.setAttribute(name, value);
    cell.toggleAttribute("hidden", !found);
    frame.classList.toggle("clickable", Boolean(found));
  };
  frame.addEventListener("pointermove", (event) => event.pointerType === "mouse" && mark(under(event)));
  frame.addEventListener("pointerleave", () => mark(null));
  frame.addEventListener("click", async (event) => {
    const found = under(event);
    if (!found) return;
    await act(found.action);
    if (!cell.hasAttribute("hidden")) mark(under(event));
  });
}

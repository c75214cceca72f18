// What tests ask of a page, inside the browser.

/** Texts of the page that meet another, and those that stand out of the page; as four corners, since some are turned. */
function textsInTheWay() {
  const boxes = [];
  const add = (text, left, top, right, bottom, matrix) => {
    const corners = [
      [left, top],
      [right, top],
      [right, bottom],
      [left, bottom],
    ].map(([x, y]) => (matrix ? new DOMPoint(x, y).matrixTransform(matrix) : { x, y }));
    boxes.push({ text, corners });
  };
  for (const label of document.querySelectorAll("svg text")) {
    const { x, y, width, height } = label.getBBox();
    // The box of a line of text has room above and below its letters.
    const room = height * 0.15;
    add(label.textContent ?? "", x, y + room, x + width, y + height - room, label.getScreenCTM() ?? undefined);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent?.trim() || node.parentElement?.closest("svg, .scroll")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const { left, top, right, bottom, width } of range.getClientRects())
      if (width > 0) add(node.textContent.trim(), left, top + 3, right, bottom - 3);
  }
  // Two convex shapes are apart if they are along a normal of an edge of one of them.
  const apart = (a, b) =>
    [a, b].some((shape) =>
      shape.some((from, i) => {
        const to = shape[(i + 1) % shape.length];
        const normal = { x: to.y - from.y, y: from.x - to.x };
        const along = (corners) => corners.map(({ x, y }) => x * normal.x + y * normal.y);
        const [one, other] = [along(a), along(b)];
        return Math.max(...one) <= Math.min(...other) + 0.1 || Math.max(...other) <= Math.min(...one) + 0.1;
      }),
    );
  const wrong = [];
  for (const [i, a] of boxes.entries()) {
    if (a.corners.some(({ x }) => x < 0 || x > window.innerWidth)) wrong.push(`${a.text} stands out`);
    for (const b of boxes.slice(0, i)) if (!apart(a.corners, b.corners)) wrong.push(`${a.text} meets ${b.text}`);
  }
  return wrong;
}

/** The least contrast of a text with the color behind it. */
function leastContrast() {
  const channels = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const light = (color) => {
    const [r, g, b] = channels(color).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    if (!element) return "rgb(255, 255, 255)";
    const color = getComputedStyle(element).backgroundColor;
    return channels(color)[3] === 0 ? behind(element.parentElement) : color;
  };
  let lowest = { text: "", least: 21 };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent?.trim() || !element || element.closest("title")) continue;
    const style = getComputedStyle(element);
    const own = light(element.closest("svg") ? style.fill : style.color);
    const [dark, bright] = [own, light(behind(element))].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < lowest.least) lowest = { text: node.textContent.trim(), least: contrast };
  }
  return lowest;
}

function inspectPage() {
  return {
    textsInTheWay: textsInTheWay(),
    contrast: leastContrast(),
    points: [...document.querySelectorAll(".charts figure")].map((figure) => {
      const frame = figure.querySelector("svg")?.getBoundingClientRect();
      const boxes = [...figure.querySelectorAll(".point")].map((point) => point.getBoundingClientRect());
      const inside = ({ left, right, top, bottom, width, height }) =>
        width > 2 &&
        height > 2 &&
        left >= frame.left &&
        right <= frame.right &&
        top >= frame.top &&
        bottom <= frame.bottom;
      return { count: boxes.length, inside: boxes.filter(inside).length };
    }),
    bars: [...document.querySelectorAll(".bar")].map((bar) => {
      const { width, height } = bar.getBoundingClientRect();
      const track = bar.closest("svg").getBoundingClientRect().width;
      return { kind: bar.classList[1], width, height, part: width / track };
    }),
    roofs: document.querySelectorAll(".roof").length,
    overflow: document.documentElement.scrollWidth - window.innerWidth,

    title: document.title,
    text: document.body.textContent ?? "",
    foreign: document.querySelectorAll("script, img, iframe, object, [onerror], [src]").length,
    background: getComputedStyle(document.body).backgroundColor,
  };
}

inspectPage();

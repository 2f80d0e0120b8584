// Evaluated in a page: what a reader with weak eyes, or none, would stumble over.
(() => {
  const found = [];
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).map((one) => {
      const share = one / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      const [, , , alpha = 1] = numbers(colour);
      if (alpha === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(".unseen, title")) continue;
    const style = getComputedStyle(element);
    const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(ink), light(paper(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${element.textContent.slice(0, 40)}`);
  }
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) found.push(`scrolls to ${page.scrollWidth} of ${innerWidth}`);
  if (page.lang !== "en") found.push("no language");
  for (const element of document.querySelectorAll("[id]")) {
    if (document.querySelectorAll(`[id="${element.id}"]`).length > 1) found.push(`id ${element.id}`);
  }
  return found;
})()

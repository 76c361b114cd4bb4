"use strict";
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  // The browser's own tips are slow: ours take their place, and what is read aloud stays.
  for (const title of document.querySelectorAll("svg.rp title")) {
    const owner = title.parentNode;
    if (owner.tagName === "svg") {
      owner.setAttribute("aria-label", title.textContent);
      owner.removeAttribute("aria-labelledby");
      const told = owner.querySelector("desc");
      if (told) owner.setAttribute("aria-describedby", told.id);
    } else owner.dataset.tip = title.textContent;
    title.remove();
  }
  for (const cell of document.querySelectorAll("td[title]")) {
    cell.dataset.tip = cell.title;
    cell.setAttribute("aria-description", cell.title);
    cell.removeAttribute("title");
  }
  for (const box of document.querySelectorAll(".box")) {
    const edge = () => box.classList.toggle("more", box.scrollLeft > 0);
    box.addEventListener("scroll", edge, { passive: true });
  }

  const scale = (text) => {
    const [a, b, least, most, log] = text.split(" ").map(Number);
    return (px) => {
      const share = (px - a) / (b - a);
      return log ? Math.exp(Math.log(least) + share * Math.log(most / least)) : least + share * (most - least);
    };
  };
  const shown = (value, unit) => {
    if (unit === "B") {
      const units = ["B", "KiB", "MiB", "GiB", "TiB"];
      let at = 0;
      while (value >= 1023.5 && at < 4) { value /= 1024; at += 1; }
      unit = units[at];
    }
    const size = Math.abs(value);
    const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    return value.toLocaleString("en", { maximumFractionDigits: digits }) + (unit ? " " + unit : "");
  };
  let hair = null;
  const clear = () => {
    tip.hidden = true;
    if (hair) hair.remove();
    hair = null;
  };
  const show = (text, event) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8));
    const above = event.clientY - height - 12;
    tip.style.left = left + "px";
    tip.style.top = (above > 8 ? above : event.clientY + 18) + "px";
  };
  const curve = (svg, event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const ends = (group) => [...group.dataset.x.split(" "), ...group.dataset.y.split(" ")].map(Number);
    const group = [...svg.querySelectorAll(".p-plot")].find((each) => {
      const [left, right, , , , bottom, top] = ends(each);
      return at.x >= left - 6 && at.x <= right + 6 && at.y >= top - 6 && at.y <= bottom + 6;
    });
    if (!group) return false;
    const [, , , , , bottom, top] = ends(group);
    const along = scale(group.dataset.x), up = scale(group.dataset.y);
    const found = [];
    let nearest = null;
    for (const line of group.querySelectorAll("polyline")) {
      let best = null;
      for (const point of line.points) if (!best || Math.abs(point.x - at.x) < Math.abs(best.x - at.x)) best = point;
      if (!best || Math.abs(best.x - at.x) > 24) continue;
      found.push(line.dataset.n + ": " + shown(up(best.y), group.dataset.yu));
      if (nearest === null || Math.abs(best.x - at.x) < Math.abs(nearest - at.x)) nearest = best.x;
    }
    if (nearest === null) return false;
    if (hair && hair.ownerSVGElement !== svg) clear();
    if (!hair) {
      hair = document.createElementNS("http://www.w3.org/2000/svg", "line");
      hair.setAttribute("class", "p-axis");
      svg.append(hair);
    }
    const line = { x1: nearest, x2: nearest, y1: top, y2: bottom };
    for (const name of Object.keys(line)) hair.setAttribute(name, line[name]);
    show(shown(along(nearest), group.dataset.xu) + "\n" + found.join("\n"), event);
    return true;
  };
  document.addEventListener("pointermove", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const owner = target && target.closest("[data-tip]");
    const svg = target && target.closest("svg.rp");
    if (owner && owner.dataset.tip) {
      clear();
      show(owner.dataset.tip, event);
    } else if (!(svg && curve(svg, event))) clear();
  });
  document.addEventListener("scroll", clear, { passive: true, capture: true });
})();

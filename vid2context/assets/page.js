"use strict";
// One page over /api/v1: every text of an answer goes in as text, never as markup.

const at = (id) => document.getElementById(id);
const CHANNELS = { lexical: "words", dense: "meaning", visual: "picture" };
let asked = 0;

const token = () => sessionStorage.getItem("token") || "";

async function call(path) {
  const headers = { authorization: `Bearer ${token()}` };
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.ok) return answer;
  let told = { code: "internal", message: `The server answered ${answer.status}.` };
  try { told = (await answer.json()).error; } catch { /* not ours: keep the status */ }
  throw Object.assign(new Error(told.message), { code: told.code });
}

function openGate(message = "") {
  at("gate-told").textContent = message;
  if (!at("gate").open) at("gate").showModal();
  at("token").focus();
}

async function begin() {
  if (!token()) return openGate();
  try {
    const about = await (await call("/api/v1/health")).json();
    const many = about.videos === 1 ? "1 video" : `${about.videos} videos`;
    at("library").textContent = `${many}, generation ${about.generation}`;
    at("gate").close();
    if (addressed()) search(addressed());
    else at("query").focus();
  } catch (error) {
    refuse(error);
  }
}

function refuse(error) {
  if (error.code === "auth") {
    sessionStorage.removeItem("token");
    openGate("That is not the token of this server.");
  } else {
    say(error instanceof TypeError ? "The server cannot be reached." : error.message, true);
  }
}

function say(text, wrong = false) {
  at("told").textContent = text;
  at("told").classList.toggle("wrong", wrong);
}

const addressed = () => new URLSearchParams(location.hash.slice(1)).get("q") || "";

function fromAddress() {
  at("query").value = addressed();
  if (addressed()) return search(addressed());
  at("moments").replaceChildren();
  say("");
  at("query").focus();
}

async function search(query) {
  const mine = ++asked;
  at("moments").classList.add("busy");
  try {
    const path = `/api/v1/search?${new URLSearchParams({ q: query, top_k: 20 })}`;
    const found = await (await call(path)).json();
    if (mine === asked) show(found, query);
  } catch (error) {
    if (mine !== asked) return;
    at("moments").replaceChildren();
    refuse(error);
  } finally {
    if (mine === asked) at("moments").classList.remove("busy");
  }
}

function show(found, query) {
  const many = found.moments.length;
  const counted = many === 1 ? "1 moment" : `${many} moments`;
  const parts = [many ? counted : "Nothing in these videos answers that."];
  if (many && found.relevance.verdict === "low") parts.push("none of them a sure hit");
  const notes = found.warnings.filter((one) => one.code !== "low_relevance" || !many);
  say([parts.join(", "), ...notes.map((one) => one.message)].join(" · "));
  for (const old of document.querySelectorAll(".picture img[src]")) URL.revokeObjectURL(old.src);
  pictures.disconnect();
  at("moments").replaceChildren(...found.moments.map((one) => card(one, query)));
}

function card(moment, query) {
  const node = at("moment").content.cloneNode(true);
  const put = (name) => node.querySelector(`.${name}`);
  const title = moment.video_title || moment.video_id;
  put("title").textContent = title;
  const time = `${label(moment.start_s)}–${label(moment.end_s)}`;
  const link = safe(moment.link);
  if (link) {
    const a = document.createElement("a");
    Object.assign(a, { href: link, target: "_blank", rel: "noopener noreferrer" });
    a.textContent = time;
    put("time").append(a);
  } else put("time").textContent = time;
  put("text").append(...marked(moment.text, query));
  const seen = moment.ocr || moment.caption;
  if (seen && seen !== moment.text) put("words").append(...marked(seen.slice(0, 200), query));
  else put("seen").remove();
  put("channels").append(...chips(moment.channels));
  put("copy").addEventListener("click", (event) => copy(event.target, cite(title, moment)));
  if (moment.thumb_url) {
    put("picture").dataset.path = moment.thumb_url;
    pictures.observe(put("picture"));
  }
  return node;
}

// Best rank of each channel, whichever of its lists it comes from.
function chips(lists) {
  const best = new Map();
  for (const [name, { rank }] of Object.entries(lists)) {
    const channel = name.split("_")[0];
    best.set(channel, Math.min(rank, best.get(channel) ?? rank));
  }
  return [...best].map(([name, rank]) => {
    const chip = document.createElement("span");
    chip.className = "chip";
    chip.textContent = `${CHANNELS[name] || name} #${rank}`;
    chip.title = `Found by ${CHANNELS[name] || name}, in place ${rank}`;
    return chip;
  });
}

const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

// Words worth marking: the longer ones, unless there are only short ones.
function telling(query) {
  const words = fold(query).match(/[\p{L}\p{N}]+/gu) || [];
  const long = words.filter((word) => word.length > 3);
  return new Set(long.length ? long : words);
}

// Begin shortly before the first of them, at a space.
function excerpt(text, words) {
  const pieces = text.split(/([\p{L}\p{N}\p{M}]+)/u);
  const first = pieces.findIndex((piece) => words.has(fold(piece)));
  const place = first < 0 ? 0 : pieces.slice(0, first).join("").length;
  const start = place > 140 ? text.indexOf(" ", place - 60) + 1 : 0;
  return start ? `… ${text.slice(start)}` : text;
}

function marked(text, query) {
  const words = telling(query);
  return excerpt(text, words).split(/([\p{L}\p{N}\p{M}]+)/u).map((part) => {
    if (!words.has(fold(part))) return document.createTextNode(part);
    const mark = document.createElement("mark");
    mark.textContent = part;
    return mark;
  });
}

function label(seconds) {
  const whole = Math.floor(seconds);
  const two = (n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

function safe(link) {
  try {
    const url = new URL(link);
    return ["http:", "https:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function cite(title, moment) {
  const plain = title.replace(/\s+/g, " ").trim().replace(/[\\`*_[\]()<>#|!$]/g, "\\$&");
  const words = `${plain} @ ${label(moment.start_s)}`;
  const link = safe(moment.link);
  const escaped = link && link.replace(/[()<> ]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);
  return escaped ? `[${words}](${escaped})` : words;
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => { button.textContent = "Copy citation"; }, 1500);
}

// Pictures need the token too, so they are fetched and shown from memory, when in view.
const pictures = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    pictures.unobserve(target);
    const image = target.querySelector("img");
    call(target.dataset.path)
      .then((answer) => answer.blob())
      .then((blob) => { image.src = URL.createObjectURL(blob); image.hidden = false; })
      .catch(() => { /* a moment without a picture is still a moment */ });
  }
}, { rootMargin: "300px" });

addEventListener("DOMContentLoaded", () => {
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const query = at("query").value.trim();
    if (!query) return;
    const next = `#${new URLSearchParams({ q: query })}`;
    if (next === location.hash) search(query);
    else location.hash = next;
  });
  at("gate-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", at("token").value.trim());
    at("token").value = "";
    begin();
  });
  at("gate").addEventListener("cancel", (event) => event.preventDefault());
  addEventListener("hashchange", () => token() && fromAddress());
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || at("gate").open || event.target.matches("input")) return;
    event.preventDefault();
    at("query").select();
  });
  at("query").value = addressed();
  begin();
});
